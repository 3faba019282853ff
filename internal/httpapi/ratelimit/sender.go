// Package ratelimit tells whom a request's rate counts for.
package ratelimit

import (
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// SenderOf returns whom a request's rate counts for: an IPv4 address, or the /64 of an
// IPv6 address, since that is the least that one subscriber is given. A
// connection without an address, as over a Unix socket, is the zero Prefix.
//
// X-Forwarded-For is read from its end, and only as far as trusted proxies wrote
// it: whatever stands before the first other address was sent by its holder.
func SenderOf(r *http.Request, trustedProxies []netip.Prefix) netip.Prefix {
	trusts := func(address netip.Addr) bool {
		return slices.ContainsFunc(trustedProxies, func(p netip.Prefix) bool { return p.Contains(address) })
	}
	address := parse(r.RemoteAddr)
	hops := strings.Split(strings.Join(r.Header.Values("X-Forwarded-For"), ","), ",")
	for i := len(hops) - 1; i >= 0 && trusts(address); i-- {
		hop := parse(strings.TrimSpace(hops[i]))
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

// parse reads an address with or without a port.
func parse(s string) netip.Addr {
	if withPort, err := netip.ParseAddrPort(s); err == nil {
		return withPort.Addr().Unmap()
	}
	address, _ := netip.ParseAddr(strings.Trim(s, "[]"))
	return address.Unmap().WithZone("")
}
