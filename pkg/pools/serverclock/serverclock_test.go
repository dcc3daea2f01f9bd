// SPDX-License-Identifier: Apache-2.0

package serverclock

import (
	"cmp"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"
)

var noon = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// TestNow: Now is not ahead of the API server's clock, and does not wait for it.
func TestNow(t *testing.T) {
	type answer struct {
		after time.Duration // since the one before, by this machine's clock
		at    time.Duration // after noon, by the API server's
	}
	for name, tc := range map[string]struct {
		start   time.Duration // of this machine's clock, after noon
		answers []answer
		want    time.Duration // after noon, ten seconds after the last answer
		server  time.Duration // likewise, of OfServer; want where 0
	}{
		"nobody has answered":                      {start: time.Hour, want: time.Hour + 10*time.Second},
		"both show the same":                       {answers: []answer{{}}, want: 10 * time.Second},
		"an answer in whole seconds":               {start: 900 * time.Millisecond, answers: []answer{{}}, want: 10900 * time.Millisecond},
		"this machine's is ahead by less":          {start: Tolerance, answers: []answer{{}}, want: 20 * time.Second},
		"this machine's is ahead by days":          {start: 72 * time.Hour, answers: []answer{{}}, want: 10 * time.Second},
		"the API server's is ahead":                {answers: []answer{{at: 72 * time.Hour}}, want: 10 * time.Second, server: 72*time.Hour + 10*time.Second},
		"an answer that took long says less":       {start: time.Hour, answers: []answer{{}, {after: 30 * time.Second, at: 5 * time.Second}}, want: 40 * time.Second},
		"one that took less says more":             {start: time.Hour, answers: []answer{{at: -20 * time.Second}, {after: 30 * time.Second, at: 30 * time.Second}}, want: 40 * time.Second},
		"the API server's was ahead, and is right": {start: time.Hour, answers: []answer{{at: 2 * time.Hour}, {after: 2 * time.Minute, at: 2 * time.Minute}}, want: 130 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			local := clocktesting.NewFakeClock(noon.Add(tc.start))
			c := New(local)
			var date string
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Date", date) }))
			defer server.Close()
			client := &http.Client{Transport: c.Wrap(http.DefaultTransport)}
			for _, a := range tc.answers {
				local.Step(a.after)
				date = noon.Add(a.at).Format(http.TimeFormat)
				answer, err := client.Get(server.URL)
				if err != nil {
					t.Fatal(err)
				}
				answer.Body.Close()
			}
			local.Step(10 * time.Second)
			if got := c.Now(); !got.Equal(noon.Add(tc.want)) {
				t.Errorf("it is %v after noon, want %v", got.Sub(noon), tc.want)
			}
			if got := c.Since(noon); got != tc.want {
				t.Errorf("noon was %v ago, want %v", got, tc.want)
			}
			if got, want := c.OfServer().Since(noon), cmp.Or(tc.server, tc.want); got != want {
				t.Errorf("by the API server's clock noon was %v ago, want %v", got, want)
			}
		})
	}
}

// TestSteady: with clocks that differ by about the tolerance, the used clock does not change again and
// again.
func TestSteady(t *testing.T) {
	local := clocktesting.NewFakeClock(noon.Add(Tolerance))
	c := New(local)
	c.answered(noon)
	for i, tc := range []struct{ ahead, want time.Duration }{ // of this machine's clock; of Now
		{Tolerance, Tolerance}, {Tolerance + time.Second, 0}, {Tolerance, 0}, {Tolerance - time.Second, 0}, {Tolerance / 2, Tolerance / 2}, {Tolerance, Tolerance},
	} {
		c.server, c.heard = local.Now().Add(-tc.ahead), local.Now()
		if got := c.Now().Sub(c.server); got != tc.want {
			t.Errorf("step %d: %v ahead of the API server's clock, want %v", i, got, tc.want)
		}
	}
}

// TestWithoutDate: a response without a time, or no response, changes nothing.
func TestWithoutDate(t *testing.T) {
	local := clocktesting.NewFakeClock(noon)
	c := New(local)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Header()["Date"] = nil }))
	client := &http.Client{Transport: c.Wrap(http.DefaultTransport)}
	answer, err := client.Get(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	server.Close()
	if answer, err = client.Get(server.URL); err == nil {
		answer.Body.Close()
		t.Error("a server that is gone answers")
	}
	if got := c.Now(); !got.Equal(noon) {
		t.Errorf("it is %v, want %v", got, noon)
	}
}
