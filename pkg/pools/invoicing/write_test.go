// SPDX-License-Identifier: Apache-2.0

package invoicing

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
)

// TestInParallel: records are written concurrently, each once, and a failure
// stops it.
func TestInParallel(t *testing.T) {
	refused := errors.New("refused")
	for name, tc := range map[string]struct {
		pieces   int
		together int // how many have to have begun before one ends; one by one, they never do
		fails    int // this one does; -1: none
		canceled bool
		want     error
	}{
		"nothing to do":                       {fails: -1},
		"one":                                 {pieces: 1, together: 1, fails: -1},
		"as many as there are writers":        {pieces: writers, together: writers, fails: -1},
		"many times as many":                  {pieces: 30*writers + 7, together: writers, fails: -1},
		"one that fails":                      {pieces: writers, together: writers, fails: 3, want: refused},
		"a context that has ended, and work":  {pieces: writers, canceled: true, fails: -1, want: context.Canceled},
		"a context that has ended, and none":  {canceled: true, fails: -1, want: context.Canceled},
		"the first fails, and many are to do": {pieces: 30 * writers, fails: 0, want: refused},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if tc.canceled {
					cancel()
				}
				begun := make(chan struct{})
				var mu sync.Mutex
				done := map[int]int{}
				err := inParallel(ctx, tc.pieces, func(_ context.Context, i int) error {
					mu.Lock()
					done[i]++
					if len(done) == tc.together {
						close(begun)
					}
					mu.Unlock()
					if tc.together > 0 {
						<-begun
					}
					if i == tc.fails {
						return refused
					}
					return nil
				})
				if !errors.Is(err, tc.want) {
					t.Errorf("error %v, want %v", err, tc.want)
				}
				for i, n := range done {
					if n != 1 {
						t.Errorf("piece %d was done %d times", i, n)
					}
				}
				if tc.want == nil && len(done) != tc.pieces {
					t.Errorf("%d pieces were done, want %d", len(done), tc.pieces)
				}
			})
		})
	}
}
