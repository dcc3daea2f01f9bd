// SPDX-License-Identifier: Apache-2.0

package allocation

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// Memo caches each pod's decoded annotation by its text, so that an annotation is decoded only once. Make
// one with NewMemo.
type Memo struct {
	mu    sync.RWMutex
	byUID map[types.UID]decoded // pod UID -> last decoded; guarded by mu
}

type decoded struct {
	text  string
	alloc *Allocation // nil when the text cannot be read
}

// NewMemo returns an empty Memo.
func NewMemo() *Memo { return &Memo{byUID: map[types.UID]decoded{}} }

// Parse is the package's Parse for the pod's annotation. For a text that cannot be read it returns nil,
// and the error only the first time. fresh reports whether this call decoded the text.
func (m *Memo) Parse(uid types.UID, text string) (a *Allocation, fresh bool, err error) {
	m.mu.RLock()
	d, ok := m.byUID[uid]
	m.mu.RUnlock()
	if ok && d.text == text {
		return d.alloc, false, nil
	}
	a, err = Parse(text)
	m.mu.Lock()
	m.byUID[uid] = decoded{text: text, alloc: a}
	m.mu.Unlock()
	return a, true, err
}

// Forget removes a pod that is gone.
func (m *Memo) Forget(uid types.UID) {
	m.mu.Lock()
	delete(m.byUID, uid)
	m.mu.Unlock()
}

// Len returns the number of pods in the cache.
func (m *Memo) Len() int {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return len(m.byUID)
}
