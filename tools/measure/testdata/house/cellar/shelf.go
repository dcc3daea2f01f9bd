// SPDX-License-Identifier: Apache-2.0

// Package cellar is imported by floor.
package cellar

import "sync"

// Shelf has two fields beside its mutex.
type Shelf struct {
	mu    sync.Mutex
	jars  []*Jar
	owner Owner
}

// Owner is told of jars.
type Owner interface{ Told(j *Jar) }

// Put calls a file above this one, and a package above this one.
func (s *Shelf) Put(j *Jar) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if fits(j.Lid) {
		s.owner.Told(j)
	}
}

func (s *Shelf) count() int { return len(s.jars) }
