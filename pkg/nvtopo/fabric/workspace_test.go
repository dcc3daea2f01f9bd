// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestPlaceAtOnce: plans made concurrently, with memory left by earlier ones, equal those made alone.
func TestPlaceAtOnce(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(14, 3))
	type task struct {
		tree    *Tree // a new one: nothing is left from others
		request *Request
		want    *Plan
	}
	var tasks []task
	for len(tasks) < 60 {
		w := randomWorld(r)
		for i := range w.nodes {
			w.nodes[i].model = r.IntN(3)
		}
		tree, request := w.request(t)
		request.Shapes[0].Kind = 1
		if want, err := Place(tree, request); err == nil {
			tasks = append(tasks, task{tree, request, want})
		}
	}
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(15, uint64(g)))
			for range 300 {
				x := tasks[r.IntN(len(tasks))]
				got, err := Place(x.tree, x.request)
				if err != nil {
					t.Error(err)
					return
				}
				if diff := cmp.Diff(x.want, got); diff != "" {
					t.Errorf("plan (-alone,+at once):\n%s", diff)
					return
				}
			}
		})
	}
	wg.Wait()
}
