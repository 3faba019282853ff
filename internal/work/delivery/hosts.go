package delivery

import (
	"fmt"
	"net"
	"net/url"
	"regexp"
	"strings"
)

// hostPattern is a host as it is written in a URL, with or without a port. It begins with a letter, a digit or the
// bracket of an IPv6 address, so git never reads it as an option.
var hostPattern = regexp.MustCompile(`^(?:[A-Za-z0-9][A-Za-z0-9.-]*|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?$`)

// A path must have one reading only. pathPattern lists its characters. pathTricks finds what servers and clients read
// differently: "." and ".." between slashes, and escapes of control characters, slashes, backslashes, dots and percent.
var (
	pathPattern = regexp.MustCompile(`^(?:/[A-Za-z0-9._~!$&'()+,;=:@%-]+)+/?$`)
	pathTricks  = regexp.MustCompile(`(?i)/\.{1,2}(?:/|$)|%(?:[01][0-9a-f]|7f|2e|2f|5c|25)`)
)

// A remote is a requester's repository that passed the checks.
type remote struct {
	url       string // built again from its checked parts
	host      string
	protocols string
}

// Hosts are the hosts that a requester's repoUrl may name, by their hostName.
type Hosts map[string]bool

// NewHosts reads a list of hosts as they are written in a URL: "git.example" or "git.example:8443".
func NewHosts(list []string) (Hosts, error) {
	hosts := Hosts{}
	for _, host := range list {
		if !hostPattern.MatchString(host) {
			return nil, fmt.Errorf("delivery: allowed host %q is not the host of an address", host)
		}
		hosts[hostName(host)] = true
	}
	return hosts, nil
}

// Check returns a *work.Failure that says why the service does not deliver to an address, or nil.
func (h Hosts) Check(address string) error {
	_, err := h.remote(address)
	return err
}

// remote checks the address that a requester named.
func (h Hosts) remote(address string) (remote, error) {
	refuse := func(why string) (remote, error) {
		return remote{}, failuref("repoUrl refused: %s", why)
	}
	u, err := url.Parse(address)
	if err != nil || len(address) > 2048 {
		return refuse("it is not an address")
	}
	if u.Opaque != "" || u.User != nil || u.RawQuery != "" || u.ForceQuery || strings.Contains(address, "#") {
		return refuse("it must be https://host/path without credentials, query or fragment")
	}
	if u.Scheme != "https" && (u.Scheme != "http" || !loopback(u.Hostname())) {
		return refuse("it must use https")
	}
	host := strings.ToLower(u.Host)
	if u.Scheme == "https" {
		host = hostName(host)
	}
	if !hostPattern.MatchString(host) || !h[host] {
		return refuse("this service does not deliver to that host")
	}
	path := u.EscapedPath()
	if !strings.HasSuffix(address, path) || !pathPattern.MatchString(path) || pathTricks.MatchString(path) {
		return refuse("its path is not that of a repository")
	}
	return remote{url: u.Scheme + "://" + host + path, host: host, protocols: u.Scheme}, nil
}

// hostName is the one form of a host: in lower case, and without the default port of https.
func hostName(host string) string { return strings.TrimSuffix(strings.ToLower(host), ":443") }

func loopback(host string) bool {
	address := net.ParseIP(host)
	return host == "localhost" || address != nil && address.IsLoopback()
}
