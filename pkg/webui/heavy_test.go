// SPDX-License-Identifier: Apache-2.0

package webui

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	v1 "k8s.io/api/core/v1"

	"github.com/nvtopo/nvtopo/internal/testkit"
)

// TestCallerFairness: one caller cannot take all turns: who asks for many answers that cost much
// waits for its own, and then is told to ask later; somebody else has an answer at once.
func TestCallerFairness(t *testing.T) {
	j := newJudge()
	j.may = func(string, *authorizationv1.ResourceAttributes) bool { return true }
	release := make(chan struct{})
	var inWork atomic.Int32
	b := newTestEnv(t, sample(t), func(c *Config) {
		j.byToken(c)
		c.Events = func(context.Context, string, string) ([]v1.Event, error) {
			inWork.Add(1)
			<-release
			return nil, nil
		}
	})
	history := asked{path: "/api/v1/history/default/train-0", header: bearer("good")}
	var all sync.WaitGroup
	var mu sync.Mutex
	codes := map[int]int{}
	for range maxAsked {
		all.Go(func() {
			code := b.code(t.Context(), history)
			mu.Lock()
			defer mu.Unlock()
			codes[code]++
		})
	}
	testkit.Eventually(t, time.Minute, "all have asked", func(context.Context) (bool, string) {
		n := b.server.heavy.asked("alice")
		return n == maxAsked && inWork.Load() == maxHeavyOfCaller, fmt.Sprint(n, " have asked, ", inWork.Load(), " are in work")
	})
	if answer, text := b.ask(t, history); answer.StatusCode != http.StatusTooManyRequests || answer.Header.Get("Retry-After") != "1" || !strings.Contains(text, "cost much") {
		t.Errorf("one more: %d, Retry-After %q: %s", answer.StatusCode, answer.Header.Get("Retry-After"), text)
	}
	if answer, text := b.ask(t, asked{path: "/api/v1/cluster", header: bearer("good")}); answer.StatusCode != http.StatusOK {
		t.Errorf("what costs little: %d %s", answer.StatusCode, text)
	}
	if answer, text := b.ask(t, asked{path: "/api/v1/explain/pod/default/train-0", header: bearer("other")}); answer.StatusCode != http.StatusOK {
		t.Errorf("another caller: %d %s", answer.StatusCode, text)
	}
	if n := inWork.Load(); n != maxHeavyOfCaller {
		t.Errorf("%d answers are in work for one caller, want %d", n, maxHeavyOfCaller)
	}
	b.clock.Step(heavyWait + time.Second)
	testkit.Eventually(t, time.Minute, "those that wait are told to ask later", func(context.Context) (bool, string) {
		mu.Lock()
		defer mu.Unlock()
		return codes[http.StatusServiceUnavailable] == maxAsked-maxHeavyOfCaller, fmt.Sprint(codes)
	})
	close(release)
	all.Wait()
	if codes[http.StatusOK] != maxHeavyOfCaller {
		t.Errorf("answers by status: %v, want %d with 200", codes, maxHeavyOfCaller)
	}
	testkit.Eventually(t, time.Minute, "nothing is kept of them", func(context.Context) (bool, string) {
		n := b.server.heavy.asked("alice") + b.server.heavy.asked("bob") + len(b.server.heavy.turns)
		return n == 0, strconv.Itoa(n)
	})
}

// asked is how much a caller asks for.
func (h *heavy) asked(caller string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	if a := h.of[caller]; a != nil {
		return a.all
	}
	return 0
}

// code is the status of an answer; 0 if there is none.
func (e *testEnv) code(ctx context.Context, q asked) int {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, e.http.URL+q.path, nil)
	if err != nil {
		return 0
	}
	for key, value := range q.header {
		r.Header.Set(key, value)
	}
	answer, err := e.http.Client().Do(r)
	if err != nil {
		return 0
	}
	defer answer.Body.Close()
	return answer.StatusCode
}
