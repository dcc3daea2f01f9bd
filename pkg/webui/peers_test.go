// SPDX-License-Identifier: Apache-2.0

package webui

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"
)

var noon = time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)

// from is a request of a peer with a token.
func from(t *testing.T, address, token string, forwarded ...string) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.RemoteAddr = address
	r.Header.Set("Authorization", "Bearer "+token)
	for _, line := range forwarded {
		r.Header.Add("X-Forwarded-For", line)
	}
	return r
}

// codeOf is the status of a refusal; 200 if there is none.
func codeOf(t *testing.T, err error) int {
	t.Helper()
	var r *Refusal
	switch {
	case err == nil:
		return http.StatusOK
	case !errors.As(err, &r):
		t.Fatalf("%v is no refusal", err)
	}
	return r.Code
}

// TestStrangerAtLogin: a stranger who sends forged tokens keeps no operator out who has a new token
// and another address, directly or behind a trusted proxy.
func TestStrangerAtLogin(t *testing.T) {
	const operators = 17
	for name, send := range map[string]func(t *testing.T, client, token string) *http.Request{
		"directly": func(t *testing.T, client, token string) *http.Request {
			t.Helper()
			return from(t, client+":4711", token)
		},
		"behind a proxy": func(t *testing.T, client, token string) *http.Request {
			t.Helper()
			return from(t, "10.0.0.7:4711", token, "198.51.100.1, "+client)
		},
	} {
		t.Run(name, func(t *testing.T) {
			j := newJudge()
			for i := range 2 * operators {
				j.owners[fmt.Sprint("operator-", i)] = fmt.Sprint("operator-", i)
			}
			c := clocktesting.NewFakeClock(noon)
			access := NewTokens(j.kube, c, []netip.Prefix{netip.MustParsePrefix("10.0.0.0/24")})
			forged := 0
			flood := func() {
				for range 200 {
					_, _ = access.Authenticate(send(t, "203.0.113.9", fmt.Sprint("forged-", forged)))
					forged++
				}
			}
			login := func(i int) {
				if _, err := access.Authenticate(send(t, fmt.Sprint("192.0.2.", i), fmt.Sprint("operator-", i))); err != nil {
					t.Errorf("operator %d: %v", i, err)
				}
			}
			for i := range operators { // all at one moment
				flood()
				login(i)
			}
			if got := int(j.tokens.Load()); got > newBurst+operators {
				t.Errorf("%d tokens were reviewed, want %d at most: those of %d operators, and %d of the stranger", got, newBurst+operators, operators, newBurst)
			}
			for i := range operators { // one in a second
				c.Step(time.Second)
				flood()
				login(operators + i)
			}
			if got := codeOf(t, func() error { _, err := access.Authenticate(send(t, "203.0.113.9", "the last")); return err }()); got != http.StatusTooManyRequests {
				t.Errorf("the stranger gets %d, want 429", got)
			}
		})
	}
}

// TestManyStrangers: what strangers at many addresses have reviewed is bounded for all together, and
// so is what is kept of them.
func TestManyStrangers(t *testing.T) {
	j := newJudge()
	access := NewTokens(j.kube, clocktesting.NewFakeClock(noon), nil)
	for i := range 3 * maxPeers {
		address := netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)})
		_, _ = access.Authenticate(from(t, address.String()+":1", fmt.Sprint("forged-", i)))
	}
	if got := j.tokens.Load(); got > strangersBurst {
		t.Errorf("%d tokens were reviewed at one moment, want %d at most", got, strangersBurst)
	}
	if got := len(access.peers.limiters.Keys()); got > maxPeers {
		t.Errorf("%d peers are kept, want %d at most", got, maxPeers)
	}
}

func TestPeerAddress(t *testing.T) {
	proxies, err := ParseProxies([]string{"10.0.0.7", "10.1.0.0/16", "fd00::/8"})
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		address   string
		forwarded []string
		want      string
	}{
		"no proxy":                                {"192.0.2.1:4711", nil, "192.0.2.1/32"},
		"a stranger who says that he is another":  {"192.0.2.1:4711", []string{"198.51.100.1"}, "192.0.2.1/32"},
		"a trusted proxy":                         {"10.0.0.7:4711", []string{"192.0.2.1"}, "192.0.2.1/32"},
		"a trusted proxy that says nothing":       {"10.0.0.7:4711", nil, "10.0.0.7/32"},
		"what the sender wrote before":            {"10.0.0.7:4711", []string{"198.51.100.1, 192.0.2.1"}, "192.0.2.1/32"},
		"what the sender wrote in another header": {"10.0.0.7:4711", []string{"198.51.100.1", "192.0.2.1"}, "192.0.2.1/32"},
		"the sender says that he is a proxy":      {"10.0.0.7:4711", []string{"10.1.0.1, 192.0.2.1"}, "192.0.2.1/32"},
		"two trusted proxies":                     {"10.0.0.7:4711", []string{"198.51.100.1, 192.0.2.1, 10.1.2.3"}, "192.0.2.1/32"},
		"only proxies":                            {"10.0.0.7:4711", []string{"10.1.2.4, 10.1.2.3"}, "10.1.2.4/32"},
		"what is no address":                      {"10.0.0.7:4711", []string{"192.0.2.1, unknown"}, "10.0.0.7/32"},
		"an address with a port":                  {"10.0.0.7:4711", []string{"192.0.2.1:80"}, "192.0.2.1/32"},
		"IPv4 in IPv6":                            {"[::ffff:10.0.0.7]:4711", []string{"::ffff:192.0.2.1"}, "192.0.2.1/32"},
		"IPv6":                                    {"[2001:db8:1:2:3:4:5:6]:4711", nil, "2001:db8:1:2::/64"},
		"IPv6 behind a proxy of IPv6":             {"[fd00::1]:4711", []string{"2001:db8:1:2::1"}, "2001:db8:1:2::/64"},
		"a zone":                                  {"[fe80::1%eth0]:4711", nil, "fe80::/64"},
		"no address at all":                       {"@", []string{"192.0.2.1"}, "invalid Prefix"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := newPeers(proxies, clocktesting.NewFakeClock(noon)).of(from(t, tc.address, "x", tc.forwarded...)).String(); got != tc.want {
				t.Errorf("the peer is %s, want %s", got, tc.want)
			}
		})
	}
}

func TestParseProxies(t *testing.T) {
	for text, want := range map[string]string{
		"10.0.0.7": "10.0.0.7/32", "::ffff:10.0.0.7": "10.0.0.7/32", "10.1.2.3/16": "10.1.0.0/16", "fd00::1": "fd00::1/128",
		"": "", "ingress": "", "10.0.0.7:80": "", "10.0.0.0/33": "", "::ffff:10.0.0.0/104": "",
	} {
		got, err := ParseProxies([]string{text})
		if (err == nil) != (want != "") || err == nil && got[0].String() != want {
			t.Errorf("%q: %v, %v, want %q", text, got, err, want)
		}
	}
}

// jwt is a token with a claim about its end.
func jwt(claims string) string {
	part := base64.RawURLEncoding.EncodeToString
	return part([]byte(`{"alg":"RS256"}`)) + "." + part([]byte(claims)) + "." + part([]byte("signature"))
}

// TestExpiredToken: a token that says itself that it has expired is refused without a review. What
// it says otherwise proves nothing.
func TestExpiredToken(t *testing.T) {
	at := func(d time.Duration) string { return fmt.Sprintf(`{"exp":%d}`, noon.Add(d).Unix()) }
	for name, tc := range map[string]struct {
		token   string
		reviews int32
		want    string // in the refusal
	}{
		"one that expired long ago":      {jwt(at(-time.Hour)), 0, "the token has expired"},
		"one that expired a moment ago":  {jwt(at(-30 * time.Second)), 1, "not valid"},
		"a forged one that is to last":   {jwt(at(time.Hour)), 1, "not valid"},
		"one without an end":             {jwt(`{"sub":"a"}`), 1, "not valid"},
		"one with an end that is null":   {jwt(`{"exp":null}`), 1, "not valid"},
		"one with an end in words":       {jwt(`{"exp":"noon"}`), 1, "not valid"},
		"one with an end before all":     {jwt(`{"exp":-1e300}`), 0, "the token has expired"},
		"one with an end after all":      {jwt(`{"exp":1e300}`), 1, "not valid"},
		"one whose claims are no JSON":   {jwt(`exp`), 1, "not valid"},
		"one whose claims are no base64": {"a.*.c", 1, "not valid"},
		"one that is no JWT":             {"opaque", 1, "not valid"},
	} {
		t.Run(name, func(t *testing.T) {
			j := newJudge()
			access := NewTokens(j.kube, clocktesting.NewFakeClock(noon), nil)
			_, err := access.Authenticate(from(t, "192.0.2.1:1", tc.token))
			if codeOf(t, err) != http.StatusUnauthorized || !strings.Contains(err.Error(), tc.want) || j.tokens.Load() != tc.reviews {
				t.Errorf("%v after %d reviews, want %q after %d", err, j.tokens.Load(), tc.want, tc.reviews)
			}
		})
	}
}

// TestCallerLimitFirst: too many requests of a caller who is known have nobody asked. While the API
// server does not answer, nothing is kept that would spare it the next review.
func TestCallerLimitFirst(t *testing.T) {
	j := newJudge()
	b := newTestEnv(t, sample(t), j.byToken)
	if answer, text := b.ask(t, asked{path: "/api/v1/whoami", header: bearer("good")}); answer.StatusCode != http.StatusOK {
		t.Fatalf("%d %s", answer.StatusCode, text)
	}
	b.clock.Step(callerTTL + time.Second)
	j.down.Store(true)
	before := j.tokens.Load()
	got := map[int]int{}
	for range 3 * requestBurst {
		answer, _ := b.ask(t, asked{path: "/api/v1/whoami", header: bearer("good")})
		got[answer.StatusCode]++
	}
	if reviews := j.tokens.Load() - before; reviews != requestBurst || got[http.StatusServiceUnavailable] != requestBurst || got[http.StatusTooManyRequests] != 2*requestBurst {
		t.Errorf("%d reviews and answers %v, want %d reviews with 503, and 429 for the other %d requests", reviews, got, requestBurst, 2*requestBurst)
	}
}
