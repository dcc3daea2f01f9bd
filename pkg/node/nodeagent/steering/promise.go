// SPDX-License-Identifier: Apache-2.0

package steering

import (
	"slices"
	"sync"
	"time"

	"github.com/nvtopo/nvtopo/pkg/node/nodeagent/steering/question"
)

// promises holds the answers that gave a container permitted devices, until kubelet acts on them. Their
// lock is only held for a moment, so that they can be read during any stall. Otherwise a stall that the
// answer survived would fail the pod one call later.
type promises struct {
	mu  sync.Mutex
	all []promise // guarded by mu
}

type promise struct {
	resource string
	ids      []string // sorted
	at       time.Time
}

func (p *promises) add(resource string, ids []string, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.expire(now)
	p.all = append(p.all, promise{resource: resource, ids: question.Sorted(ids), at: now})
}

// take removes the answer with these ids and reports whether it existed.
func (p *promises) take(resource string, ids []string, now time.Time) bool {
	ids = question.Sorted(ids)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.expire(now)
	n := len(p.all)
	p.all = slices.DeleteFunc(p.all, func(o promise) bool { return o.resource == resource && slices.Equal(o.ids, ids) })
	return len(p.all) < n
}

// expire removes old answers. It needs mu.
func (p *promises) expire(now time.Time) {
	p.all = slices.DeleteFunc(p.all, func(o promise) bool { return now.Sub(o.at) >= grantAge })
}
