// SPDX-License-Identifier: Apache-2.0

package metering

import (
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// remembered is how long a deleted pod is remembered. Its record is written within seconds of the
// deletion, or when the API server is back.
const remembered = time.Hour

// memory keeps deleted pods until their end is recorded. After a restart, the heartbeat replaces its
// contents.
type memory struct {
	mu    sync.Mutex
	pods  map[types.UID]lost // guarded by mu
	swept time.Time          // guarded by mu; when outdated pods were last removed
}

// lost is a pod that is gone.
type lost struct {
	pod *v1.Pod // its last state
	end end
}

func newMemory() *memory { return &memory{pods: map[types.UID]lost{}} }

// goneAt returns the end of a pod whose deletion was just seen. unsure reports that it was deleted some
// time before, while the API server could not be reached; beat is the time until which it could.
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

// keep remembers a pod whose deletion was seen.
func (m *memory) keep(pod *v1.Pod, e end) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if e.at.Sub(m.swept) > remembered/10 { // not each time: thousands may be deleted at once
		for uid, l := range m.pods {
			if e.at.Sub(l.end.at) > remembered {
				delete(m.pods, uid)
			}
		}
		m.swept = e.at
	}
	m.pods[pod.UID] = lost{pod, e}
}

// of returns the pod with this UID, if its deletion was seen.
func (m *memory) of(uid types.UID) (lost, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	l, ok := m.pods[uid]
	return l, ok
}

// forget removes a pod whose records are complete.
func (m *memory) forget(uid types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.pods, uid)
}
