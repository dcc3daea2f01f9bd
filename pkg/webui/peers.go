// SPDX-License-Identifier: Apache-2.0

package webui

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"golang.org/x/time/rate"

	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/utils/clock"
)

const (
	// newPerSecond and newBurst bound the reviews of one peer's tokens that were not recently valid: a fifth
	// and a half of the limits of all peers together.
	newPerSecond = 2
	newBurst     = 20
	// maxPeers bounds the peers whose new tokens are counted, and peerTTL the time for which they are:
	// within it a peer has all of its burst again.
	maxPeers = 4096
	peerTTL  = time.Minute
	// peerBits is the length of the IPv6 prefix that identifies a peer: the owner of one address usually has
	// the whole prefix.
	peerBits = 64
	// expirySkew is the allowed difference between the clocks of the API server and of this machine.
	expirySkew = time.Minute
)

// ParseProxies parses addresses and CIDRs of proxies.
func ParseProxies(list []string) ([]netip.Prefix, error) {
	var out []netip.Prefix
	for _, text := range list {
		if a, err := netip.ParseAddr(text); err == nil {
			a = a.Unmap().WithZone("")
			out = append(out, netip.PrefixFrom(a, a.BitLen()))
			continue
		}
		p, err := netip.ParsePrefix(text)
		if err != nil || p.Addr().Is4In6() {
			return nil, fmt.Errorf("%q: want an address such as 10.0.0.7 or a CIDR such as 10.0.0.0/24", text)
		}
		out = append(out, p.Masked())
	}
	return out, nil
}

// peers bound the rate of each peer's new tokens.
type peers struct {
	proxies  []netip.Prefix
	limiters *cache.LRUExpireCache // by the peer's address
	clock    clock.PassiveClock
}

func newPeers(proxies []netip.Prefix, c clock.PassiveClock) *peers {
	return &peers{proxies: proxies, limiters: cache.NewLRUExpireCacheWithClock(maxPeers, c), clock: c}
}

// allow takes one review of a new token from the limit of the request's sender.
func (p *peers) allow(r *http.Request) *Refusal {
	peer := p.of(r)
	limiter := rate.NewLimiter(newPerSecond, newBurst)
	if known, ok := p.limiters.Get(peer); ok {
		limiter = known.(*rate.Limiter) //nolint:forcetypeassert // only limiters are kept
	} else {
		p.limiters.Add(peer, limiter, peerTTL)
	}
	if !limiter.AllowN(p.clock.Now(), 1) {
		return &Refusal{http.StatusTooManyRequests, fmt.Sprintf("more than %d new tokens a second from this address", newPerSecond), "try again in a second"}
	}
	return nil
}

// of returns the address that a request comes from: that of the connection, or, if the connection is a
// trusted proxy's, the last address in X-Forwarded-For that is not a trusted proxy's. Entries before that
// were set by the sender. A request with an unreadable entry is attributed to the proxy.
func (p *peers) of(r *http.Request) netip.Prefix {
	from, _ := hostAddress(r.RemoteAddr) // the zero address is a peer, too
	forwarded := strings.Split(strings.Join(r.Header.Values("X-Forwarded-For"), ","), ",")
	for _, text := range slices.Backward(forwarded) {
		if !p.trusted(from) {
			break
		}
		next, ok := hostAddress(strings.TrimSpace(text))
		if !ok {
			break
		}
		from = next
	}
	bits := from.BitLen()
	if from.Is6() {
		bits = peerBits
	}
	return netip.PrefixFrom(from, bits).Masked()
}

func (p *peers) trusted(a netip.Addr) bool {
	return slices.ContainsFunc(p.proxies, func(proxy netip.Prefix) bool { return proxy.Contains(a) })
}

// hostAddress parses an address with or without a port.
func hostAddress(text string) (netip.Addr, bool) {
	a, err := netip.ParseAddr(text)
	if err != nil {
		both, err := netip.ParseAddrPort(text)
		if err != nil {
			return netip.Addr{}, false
		}
		a = both.Addr()
	}
	return a.Unmap().WithZone(""), true
}

// expired reports whether a token is a JWT whose expiry has passed. The signature is not checked: a false
// expiry leads to a refusal or to a review of the token.
func expired(token string, now time.Time) bool {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return false
	}
	claims, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return false
	}
	var said struct {
		Expiry *float64 `json:"exp"`
	}
	if err := json.Unmarshal(claims, &said); err != nil || said.Expiry == nil {
		return false
	}
	return float64(now.Add(-expirySkew).Unix()) > *said.Expiry
}
