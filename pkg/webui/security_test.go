// SPDX-License-Identifier: Apache-2.0

package webui

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	v1 "k8s.io/api/core/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/nvtopo/nvtopo/internal/testkit"
)

// TestRefusedRequests sends what no browser of ours sends.
func TestRefusedRequests(t *testing.T) {
	b := newTestEnv(t, sample(t), func(c *Config) { c.Files = pages(map[string]string{"index.html": "<html></html>"}) })
	port := b.http.URL[strings.LastIndex(b.http.URL, ":"):]
	tests := map[string]struct {
		asked
		want int
		say  string
	}{
		"a program":                           {asked{path: "/api/v1/cluster"}, 200, `"version"`},
		"the page itself":                     {asked{path: "/api/v1/cluster", header: map[string]string{"Sec-Fetch-Site": "same-origin"}}, 200, `"version"`},
		"its origin":                          {asked{path: "/api/v1/cluster", header: map[string]string{"Origin": b.http.URL}}, 200, `"version"`},
		"localhost":                           {asked{path: "/api/v1/cluster", host: "LOCALHOST" + port}, 200, `"version"`},
		"IPv6":                                {asked{path: "/api/v1/cluster", host: "[::1]" + port}, 200, `"version"`},
		"a link from another site":            {asked{path: "/", header: map[string]string{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}}, 200, "<html>"},
		"a page of another site":              {asked{path: "/api/v1/cluster", header: map[string]string{"Sec-Fetch-Site": "cross-site"}}, 403, "another site"},
		"another port of this machine":        {asked{path: "/api/v1/cluster", header: map[string]string{"Sec-Fetch-Site": "same-site"}}, 403, "another site"},
		"the stream, from another site":       {asked{path: "/api/v1/stream", header: map[string]string{"Sec-Fetch-Site": "cross-site"}}, 403, "another site"},
		"the stream, from another origin":     {asked{path: "/api/v1/stream", header: map[string]string{"Origin": "https://evil.example"}}, 403, "another site"},
		"the stream, from no origin":          {asked{path: "/api/v1/stream", header: map[string]string{"Origin": "null"}}, 403, "another site"},
		"a name that was bound anew":          {asked{path: "/api/v1/cluster", host: "evil.example" + port}, 421, "evil.example"},
		"such a name, for a page":             {asked{path: "/", host: "evil.example"}, 421, "evil.example"},
		"a name like one of ours":             {asked{path: "/api/v1/cluster", host: "localhost.evil.example"}, 421, "evil.example"},
		"a POST":                              {asked{method: "POST", path: "/api/v1/cluster"}, 405, "GET and HEAD"},
		"a DELETE":                            {asked{method: "DELETE", path: "/api/v1/nodes/h100-0"}, 405, "GET and HEAD"},
		"OPTIONS, before a request of a site": {asked{method: "OPTIONS", path: "/api/v1/cluster"}, 405, "GET and HEAD"},
		"a body":                              {asked{path: "/api/v1/cluster", body: "x"}, 413, "body"},
		"a long path":                         {asked{path: "/api/v1/nodes/" + strings.Repeat("n", 2000)}, 414, "1024"},
		"a path of no document":               {asked{path: "/api/v1/secrets"}, 404, "no such path"},
		"a path outside":                      {asked{path: "/api/v1/nodes/..%2f..%2fsecrets"}, 404, "no node"},
		"a node that is not there":            {asked{path: "/api/v1/nodes/none"}, 404, "no node"},
		"a kind that nobody explains":         {asked{path: "/api/v1/explain/secret/a/b"}, 404, "nothing explains"},
		"a pod that is not there":             {asked{path: "/api/v1/explain/pod/a/b"}, 404, "no pod a/b"},
		"a gang that is not there":            {asked{path: "/api/v1/gangs/a/b"}, 404, "no gang"},
		"a history that is not there":         {asked{path: "/api/v1/history/a/b"}, 404, "no pod"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			answer, text := b.ask(t, tc.asked)
			if answer.StatusCode != tc.want || !strings.Contains(text, tc.say) {
				t.Errorf("%d %.300s, want %d with %q", answer.StatusCode, text, tc.want, tc.say)
			}
			if tc.want != 200 && !strings.Contains(text, `"hint":"`) {
				t.Errorf("the answer has no hint: %s", text)
			}
			if got := answer.Header.Get("Access-Control-Allow-Origin"); got != "" {
				t.Errorf("it lets in %q", got)
			}
			b.clock.Step(time.Second) // so that the limit of requests is another test's
		})
	}
}

// TestAnswerHeaders: every answer has the security headers. No script of a page, no frame, no form.
func TestAnswerHeaders(t *testing.T) {
	b := newTestEnv(t, sample(t), func(c *Config) {
		c.Files = pages(map[string]string{"index.html": "<html></html>", "assets/a-1.js": "1"})
	})
	for _, path := range []string{"/", "/workloads?state=pending", "/assets/a-1.js", "/assets/gone.js", "/api/v1/cluster", "/api/v1/none", "/favicon.ico"} {
		answer, _ := b.ask(t, asked{path: path})
		csp := answer.Header.Get("Content-Security-Policy")
		for _, want := range []string{"default-src 'none'", "script-src 'self';", "connect-src 'self'", "frame-ancestors 'none'", "base-uri 'none'", "form-action 'none'"} {
			if !strings.Contains(csp, want) {
				t.Errorf("%s: Content-Security-Policy %q has no %q", path, csp, want)
			}
		}
		if strings.Contains(csp, "unsafe-eval") || strings.Contains(strings.ReplaceAll(csp, "style-src 'self' 'unsafe-inline'", ""), "unsafe-inline") {
			t.Errorf("%s: Content-Security-Policy %q lets scripts of a page run", path, csp)
		}
		for key, want := range map[string]string{
			"X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY", "Referrer-Policy": "no-referrer", "Cross-Origin-Resource-Policy": "same-origin",
		} {
			if got := answer.Header.Get(key); got != want {
				t.Errorf("%s: %s is %q, want %q", path, key, got, want)
			}
		}
	}
}

// TestTokens: who has no token of the cluster, or may not list what is shown, sees nothing.
func TestTokens(t *testing.T) {
	j := newJudge()
	b := newTestEnv(t, sample(t), j.byToken)
	for name, tc := range map[string]struct {
		header map[string]string
		want   int
		say    string
	}{
		"a good token":             {bearer("good"), 200, `"version"`},
		"no token":                 {nil, 401, "no token"},
		"a forged token":           {bearer("forged"), 401, "not valid"},
		"an empty token":           {bearer(""), 401, "no token"},
		"a password":               {map[string]string{"Authorization": "Basic Z29vZDpnb29k"}, 401, "no token"},
		"a long token":             {bearer(strings.Repeat("x", maxToken+1)), 401, "bytes"},
		"a token without rights":   {bearer("other"), 403, "bob may not list nodes"},
		"a token as a query":       {nil, 401, "no token"},
		"the token of a good user": {bearer("good"), 200, `"version"`},
	} {
		for _, path := range []string{"/api/v1/cluster", "/api/v1/stream", "/api/v1/workloads", "/api/v1/explain/pod/default/train-0"} {
			if tc.want == 200 && path == "/api/v1/stream" {
				continue // it does not end
			}
			answer, text := b.ask(t, asked{path: path + "?token=good", header: tc.header})
			if ok := tc.want == 200 && answer.StatusCode == 200; !ok && (answer.StatusCode != tc.want || !strings.Contains(text, tc.say)) {
				t.Errorf("%s: %s: %d %.200s, want %d with %q", name, path, answer.StatusCode, text, tc.want, tc.say)
			}
			if got := answer.Header.Get("WWW-Authenticate"); (tc.want == 401) != (got == "Bearer") {
				t.Errorf("%s: WWW-Authenticate is %q with %d", name, got, answer.StatusCode)
			}
			b.clock.Step(time.Second)
		}
	}
}

// TestDocumentRights: rights are checked for each kind that is shown. Whoever may not list invoices
// does not see bills, though nodes and pods.
func TestDocumentRights(t *testing.T) {
	j := newJudge()
	var allowed []string
	j.may = func(_ string, r *authorizationv1.ResourceAttributes) bool {
		if r.Verb != "list" || r.Namespace != "" {
			t.Errorf("asked for %s in %q, want list in all namespaces", r.Verb, r.Namespace)
		}
		return slices.Contains(allowed, r.Resource)
	}
	b := newTestEnv(t, sample(t), j.byToken)
	cluster := []string{"nodes", "nodegputopologies", "clustertopologies"}
	pods := append([]string{
		"podgroups", "pods", "namespaces", "persistentvolumeclaims", "jobs", "poddisruptionbudgets", "storageclasses", "workloads", "localqueues", "clusterqueues",
	}, cluster...)
	for _, tc := range []struct {
		allowed []string
		want    map[string]int
	}{
		{nil, map[string]int{"/api/v1/whoami": 200, "/api/v1/cluster": 403, "/api/v1/pools": 403}},
		{cluster, map[string]int{"/api/v1/cluster": 200, "/api/v1/workloads": 403, "/api/v1/nodes/h100-0": 403, "/api/v1/stream": 403}},
		{
			pods,
			map[string]int{"/api/v1/workloads": 200, "/api/v1/gangs": 200, "/api/v1/nodes/h100-0": 200, "/api/v1/history/default/train-0": 403, "/api/v1/pools/bills": 403},
		},
		{pods[1:], map[string]int{"/api/v1/workloads": 403, "/api/v1/explain/pod/default/train-0": 403}},
		{append(slices.Clone(pods), "events", "computepools"), map[string]int{"/api/v1/history/default/train-0": 200, "/api/v1/pools": 200, "/api/v1/pools/usage": 403}},
		{[]string{"usagerecords", "usagebatches", "tenantaccounts", "pricebooks", "invoices"}, map[string]int{"/api/v1/pools/bills": 200, "/api/v1/pools/usage": 200, "/api/v1/pools/hours": 403, "/api/v1/workloads": 403}},
		{[]string{"usagerecords", "usagebatches", "tenantaccounts", "pricebooks", "invoices", "computepools", "namespaces"}, map[string]int{"/api/v1/pools/hours": 200}},
	} {
		allowed = tc.allowed
		b.clock.Step(answerTTL + time.Second)
		for path, want := range tc.want {
			if answer, text := b.ask(t, asked{path: path, header: bearer("good")}); answer.StatusCode != want {
				t.Errorf("with the rights to list %v, %s: %d %.200s, want %d", tc.allowed, path, answer.StatusCode, text, want)
			}
		}
	}
}

// TestReviewCache: reviews are kept and bounded. The API server is asked once in ten seconds for a
// token, and strangers cannot have it asked without end.
func TestReviewCache(t *testing.T) {
	j := newJudge()
	c := clocktesting.NewFakeClock(time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC))
	access := NewTokens(j.kube, c, nil)
	who := func(token string) error {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+token)
		caller, err := access.Authenticate(r)
		if err == nil {
			err = access.Authorize(t.Context(), caller, seesCluster())
		}
		return err
	}
	for range 50 {
		if err := who("good"); err != nil {
			t.Fatal(err)
		}
	}
	if got, rights := j.tokens.Load(), j.rights.Load(); got != 1 || rights != 3 {
		t.Errorf("%d tokens and %d rights were reviewed, want 1 and 3", got, rights)
	}
	j.expired.Store(true)
	c.Step(answerTTL + time.Second)
	if err := who("good"); err == nil || !strings.Contains(err.Error(), "expired") {
		t.Errorf("ten seconds after it expired the token counts: %v", err)
	}
	before := j.tokens.Load()
	limited := 0
	for i := range 1000 {
		if codeOf(t, who(fmt.Sprint("guess-", i))) == http.StatusTooManyRequests {
			limited++
		}
	}
	if asked := j.tokens.Load() - before; asked > strangersBurst || limited != 1000-int(asked) {
		t.Errorf("of 1000 guesses %d were reviewed and %d refused before, want %d at most and the rest", asked, limited, strangersBurst)
	}
	j.expired.Store(false)
	c.Step(answerTTL + time.Second)
	for range strangersBurst * 2 { // the guesses go on
		_ = who(fmt.Sprint("guess-", limited))
		limited++
	}
	if err := who("good"); err != nil {
		t.Errorf("those who guess keep out one whose token was valid: %v", err)
	}
	if n := len(access.answers.Keys()); n > maxAnswers {
		t.Errorf("%d answers are kept", n)
	}
}

// TestTokenLeaks: no answer or log repeats a token: what the API server's client says of a review
// may have the token.
func TestTokenLeaks(t *testing.T) {
	j := newJudge()
	j.down.Store(true)
	b := newTestEnv(t, sample(t), j.byToken)
	answer, text := b.ask(t, asked{path: "/api/v1/cluster", header: bearer("good-secret")})
	if answer.StatusCode != 503 || strings.Contains(text, "good-secret") {
		t.Errorf("%d %s, want 503 without the token", answer.StatusCode, text)
	}
	for _, key := range b.server.config.Access.(*Tokens).answers.Keys() {
		if strings.Contains(fmt.Sprintf("%s", key), "good-secret") {
			t.Error("the token itself is kept")
		}
	}
}

// TestTokenExpiry: a token that expires ends the stream, and so does a right that is taken back.
func TestTokenExpiry(t *testing.T) {
	for name, tc := range map[string]struct {
		take    func(j *judge)
		reviews int
		want    string
	}{
		"the token expires":          {func(j *judge) { j.expired.Store(true) }, 1, "the token has expired"},
		"the right is taken back":    {func(j *judge) { j.owners["good"] = "bob" }, 1, "bob may not list nodes"},
		"nobody can say for minutes": {func(j *judge) { j.down.Store(true) }, maxUnsaid, "the API server does not say whether the token is valid"},
	} {
		eachProtocol(t, name, func(t *testing.T, over func(*testing.T, *testEnv) *connections) {
			t.Helper()
			j := newJudge()
			b := newTestEnv(t, sample(t), j.byToken)
			over(t, b)
			_, events := b.follow(t, bearer("good"))
			if e := next(t, events); e.name != "hello" {
				t.Fatalf("first %+v, want hello", e)
			}
			waitForTickers(t, b.clock)
			tc.take(j)
			for n := range tc.reviews {
				before := j.tokens.Load()
				b.clock.Step(reviewEvery * 5 / 4)
				testkit.Eventually(t, time.Minute, "the token is reviewed", func(context.Context) (bool, string) { return j.tokens.Load() > before, "" })
				if looking := b.server.looking.Load(); n+1 < tc.reviews && looking != 1 {
					t.Fatalf("after %d reviews nobody looks", n+1)
				}
			}
			for {
				e := next(t, events)
				if e.name == "bye" {
					if !strings.Contains(e.data, tc.want) {
						t.Errorf("bye %s, want %q", e.data, tc.want)
					}
					break
				}
			}
			if e, more := <-events; more {
				t.Errorf("after bye %+v", e)
			}
			testkit.Eventually(t, time.Minute, "nobody looks", func(context.Context) (bool, string) {
				return b.server.looking.Load() == 0 && len(b.server.viewers.of) == 0, fmt.Sprint(b.server.viewers.of)
			})
		})
	}
}

// waitForTickers waits until a stream has its tickers, besides the one of the server.
func waitForTickers(t *testing.T, c *clocktesting.FakeClock) {
	t.Helper()
	testkit.Eventually(t, time.Minute, "the stream waits", func(context.Context) (bool, string) { return c.Waiters() >= 3, fmt.Sprint(c.Waiters(), " waiters") })
}

// TestRequestLimit: requests are limited. One who asks too often waits, others do not.
func TestRequestLimit(t *testing.T) {
	eachProtocol(t, "a caller", limitOfRequests)
}

func limitOfRequests(t *testing.T, over func(*testing.T, *testEnv) *connections) {
	t.Helper()
	j := newJudge()
	j.may = func(string, *authorizationv1.ResourceAttributes) bool { return true }
	b := newTestEnv(t, sample(t), j.byToken)
	over(t, b)
	refused := 0
	for range requestBurst + 20 {
		if answer, text := b.ask(t, asked{path: "/api/v1/whoami", header: bearer("mallory")}); answer.StatusCode == http.StatusTooManyRequests {
			if refused++; answer.Header.Get("Retry-After") != "1" || !strings.Contains(text, "requests a second") {
				t.Errorf("429 %s", text)
			}
		}
	}
	if refused != 20 {
		t.Errorf("%d of %d requests at one moment were refused, want 20", refused, requestBurst+20)
	}
	if answer, _ := b.ask(t, asked{path: "/api/v1/whoami", header: bearer("good")}); answer.StatusCode != http.StatusOK {
		t.Errorf("another caller gets %d", answer.StatusCode)
	}
	b.clock.Step(time.Second)
	if answer, _ := b.ask(t, asked{path: "/api/v1/whoami", header: bearer("mallory")}); answer.StatusCode != http.StatusOK {
		t.Errorf("a second later it gets %d", answer.StatusCode)
	}
}

// TestStreamLimit: streams are limited. One user has so many, and one that ends makes room.
func TestStreamLimit(t *testing.T) {
	v := &viewers{of: map[string]int{}}
	for i := range maxStreamsPerCaller {
		if err := v.enter("a"); err != nil {
			t.Fatalf("stream %d: %v", i, err)
		}
	}
	if err := v.enter("a"); err == nil {
		t.Errorf("%d streams of one user", maxStreamsPerCaller+1)
	}
	if err := v.enter("b"); err != nil {
		t.Errorf("another user: %v", err)
	}
	v.leave("a")
	if err := v.enter("a"); err != nil {
		t.Errorf("after one ended: %v", err)
	}
	for i := 0; v.all < maxStreams; i++ {
		if err := v.enter(fmt.Sprint("user-", i)); err != nil {
			t.Fatal(err)
		}
	}
	if err := v.enter("last"); err == nil {
		t.Errorf("%d streams in all", v.all)
	}
}

// TestSecretLeaks: answers hold no secrets. Environments, commands and volumes of pods are nobody's
// business here.
func TestSecretLeaks(t *testing.T) {
	c := sample(t)
	for i := range c.Pods {
		p := &c.Pods[i]
		p.Spec.Containers[0].Env = []v1.EnvVar{{Name: "PASSWORD", Value: "s3cret"}}
		p.Spec.Containers[0].Command = []string{"run", "--token=s3cret"}
		p.Spec.ImagePullSecrets = []v1.LocalObjectReference{{Name: "s3cret"}}
		p.Annotations["example.com/key"] = "s3cret"
	}
	b := newTestEnv(t, c, nil)
	for _, path := range []string{"cluster", "nodes/h100-2", "workloads", "gangs", "gangs/default/train", "explain/pod/default/train-0", "history/default/train-0", "pools", "whoami"} {
		answer, text := b.ask(t, asked{path: "/api/v1/" + path})
		if answer.StatusCode != 200 || strings.Contains(text, "s3cret") {
			t.Errorf("%s: %d, with the secret %t", path, answer.StatusCode, strings.Contains(text, "s3cret"))
		}
	}
}
