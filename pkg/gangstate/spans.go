// SPDX-License-Identifier: Apache-2.0

package gangstate

import (
	"maps"
	"time"
)

// spans say of nodes, or of namespaces, since when places are kept there, or for them, without a break;
// and of those for which that ended in vain until when nothing is kept.
type spans map[string]span

// span is a time in which something is kept, or after which nothing is.
type span struct {
	since time.Time // when it began
	until time.Time // when something may be kept again; zero while something is kept
}

// begin takes note that something is kept from now on, unless it is already.
func (s spans) begin(name string, now time.Time) {
	if x, ok := s[name]; !ok || !x.until.IsZero() {
		s[name] = span{since: now}
	}
}

// end takes note that what was kept was kept in vain: for as long as that was, nothing is kept.
func (s spans) end(name string, now time.Time) {
	if x, ok := s[name]; ok && x.until.IsZero() {
		x.until = now.Add(now.Sub(x.since))
		s[name] = x
	}
}

// since is when something began to be kept; now if nothing is.
func (s spans) since(name string, now time.Time) time.Time {
	if x, ok := s[name]; ok && x.until.IsZero() {
		return x.since
	}
	return now
}

// openUntil is when something may be kept again; zero if it may be now.
func (s spans) openUntil(name string, now time.Time) time.Time {
	if x, ok := s[name]; ok && x.until.After(now) {
		return x.until
	}
	return time.Time{}
}

// forget drops the spans that are over.
func (s spans) forget(now time.Time) {
	maps.DeleteFunc(s, func(_ string, x span) bool { return !x.until.IsZero() && !x.until.After(now) })
}
