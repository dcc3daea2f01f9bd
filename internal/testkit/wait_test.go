// SPDX-License-Identifier: Apache-2.0

package testkit

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// judged is a test that records its failure.
type judged struct {
	testing.TB
	message string
}

func (j *judged) Helper() {}

func (j *judged) Fatalf(format string, args ...any) {
	j.message = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// question is a request: a verb and a resource.
type question [2]string

func (q question) Matches(verb, resource string) bool { return q == question{verb, resource} }

// judge runs a test and returns its failure's message, empty without one.
func judge(t *testing.T, run func(tb testing.TB)) string {
	t.Helper()
	j := &judged{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		run(j)
	}()
	<-done
	return j.message
}

func TestWaiting(t *testing.T) {
	after := func(d time.Duration) func() bool {
		var is atomic.Bool
		time.AfterFunc(d, func() { is.Store(true) })
		return is.Load
	}
	tests := map[string]struct {
		run  func(tb testing.TB)
		want string // in the message; empty: the test goes on
	}{
		"what is so already": {run: func(tb testing.TB) {
			tb.Helper()
			Eventually(tb, 0, "it is so", func(context.Context) (bool, string) { return true, "" })
			Soon(tb, "it is so", func() bool { return true })
		}},
		"what comes in time": {run: func(tb testing.TB) {
			tb.Helper()
			so := after(time.Minute)
			Eventually(tb, 2*time.Minute, "it is so", func(context.Context) (bool, string) { return so(), "" })
			Soon(tb, "it is so", after(time.Second))
		}},
		"what comes too late": {
			run: func(tb testing.TB) {
				tb.Helper()
				so := after(time.Hour)
				Eventually(tb, time.Minute, "the pod runs", func(context.Context) (bool, string) { return so(), "Pending" })
			},
			want: "the pod runs: not within 1m0s; last seen: Pending",
		},
		"an answer that the end cuts off": {
			run: func(tb testing.TB) {
				tb.Helper()
				asked := 0
				Eventually(tb, time.Minute, "the pod runs", func(ctx context.Context) (bool, string) {
					if asked++; asked > 1 {
						<-ctx.Done()
						return false, ctx.Err().Error()
					}
					return false, "Pending"
				})
			},
			want: "last seen: Pending",
		},
		"an answer that never comes": {
			run: func(tb testing.TB) {
				tb.Helper()
				Eventually(tb, time.Minute, "the pod runs", func(ctx context.Context) (bool, string) {
					<-ctx.Done()
					return false, "no answer"
				})
			},
			want: "last seen: no answer",
		},
		"what does not come soon": {
			run:  func(tb testing.TB) { tb.Helper(); Soon(tb, "the socket", after(time.Hour)) },
			want: "not within 2m0s: the socket",
		},
		"a watch that follows its list": {run: func(tb testing.TB) {
			tb.Helper()
			asked, watched := []question{{"list", "pods"}, {"watch", "nodes"}}, after(time.Second)
			Watched(tb, func() []question {
				if watched() {
					return append(asked, question{"watch", "pods"})
				}
				return asked
			}, "nodes", "pods")
			if !watched() {
				tb.Error("the list was taken for the watch")
			}
		}},
		"a list without a watch": {
			run: func(tb testing.TB) {
				tb.Helper()
				Watched(tb, func() []question { return []question{{"list", "pods"}, {"watch", "nodes"}} }, "nodes", "pods")
			},
			want: "not within 2m0s: a watch of pods",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				got := judge(t, tc.run)
				if (tc.want == "") != (got == "") || !strings.Contains(got, tc.want) {
					t.Errorf("message %q, want %q", got, tc.want)
				}
			})
		})
	}
}
