// SPDX-License-Identifier: Apache-2.0

package metering

import (
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// remembered is for how long a pod that is gone is remembered. Its record is written within seconds
// of that, or when the API server is back.
const remembered = time.Hour

// memory keeps pods that were seen to go until their records say so. What it forgets with the
// process, the heartbeat stands for.
type memory struct {
	mu    sync.Mutex
	pods  map[types.UID]lost // guarded by mu
	swept time.Time          // guarded by mu; when pods that are too old were last looked for
}

// lost is a pod that is gone.
type lost struct {
	pod *v1.Pod // as it was last
	end end
}

func newMemory() *memory { return &memory{pods: map[types.UID]lost{}} }

// goneAt is the end of a pod that was just seen to go. unsure says that it went some time before,
// while the API server could not be asked, and beat is until when it could.
func goneAt(pod *v1.Pod, unsure bool, beat, now time.Time) end {
	over := isOver(pod)
	if over {
		if e, _ := endOf(pod, now); !e.estimated {
			return e
		}
	}
	if unsure && !beat.IsZero() {
		return end{at: earlier(beat, now), estimated: true}
	}
	return end{at: now, estimated: unsure || over}
}

// keep remembers a pod that was seen to go.
func (m *memory) keep(pod *v1.Pod, e end) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if e.at.Sub(m.swept) > remembered/10 { // not each time: thousands may go at once
		for uid, l := range m.pods {
			if e.at.Sub(l.end.at) > remembered {
				delete(m.pods, uid)
			}
		}
		m.swept = e.at
	}
	m.pods[pod.UID] = lost{pod, e}
}

// of is the pod with this UID, if it was seen to go.
func (m *memory) of(uid types.UID) (lost, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	l, ok := m.pods[uid]
	return l, ok
}

// forget is for a pod whose records say all.
func (m *memory) forget(uid types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.pods, uid)
}
