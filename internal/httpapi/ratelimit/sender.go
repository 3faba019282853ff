package ratelimit

import (
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// Sender returns the key that a request's rate is counted for: its IPv4 address, or
// the /64 network of its IPv6 address, since a subscriber gets at least a /64. A
// connection without an address, such as a Unix socket, has the zero Prefix.
//
// X-Forwarded-For is read from its end and only while trusted proxies wrote it. What
// stands before the first untrusted address was written by the client, who can
// invent it.
func Sender(r *http.Request, trustedProxies []netip.Prefix) netip.Prefix {
	trusted := func(address netip.Addr) bool {
		return slices.ContainsFunc(trustedProxies, func(p netip.Prefix) bool { return p.Contains(address) })
	}
	address := parseAddress(r.RemoteAddr)
	hops := strings.Split(strings.Join(r.Header.Values("X-Forwarded-For"), ","), ",")
	for i := len(hops) - 1; i >= 0 && trusted(address); i-- {
		hop := parseAddress(strings.TrimSpace(hops[i]))
		if !hop.IsValid() {
			break
		}
		address = hop
	}
	bits := 32
	if address.Is6() {
		bits = 64
	}
	prefix, _ := address.Prefix(bits)
	return prefix
}

// parseAddress reads an address with or without a port.
func parseAddress(s string) netip.Addr {
	if withPort, err := netip.ParseAddrPort(s); err == nil {
		return withPort.Addr().Unmap()
	}
	address, _ := netip.ParseAddr(strings.Trim(s, "[]"))
	return address.Unmap().WithZone("")
}
