// SPDX-License-Identifier: Apache-2.0

package gangstate

import (
	"slices"
	"time"
)

// Config says how long gangs are waited for. It is one for the process: a gang may have members
// of several profiles. The zero value evicts nobody and keeps nothing.
type Config struct {
	ScheduleTimeout time.Duration // a gang that was never whole may be partly bound for so long; 0: for ever
	DrainAfter      time.Duration // a gang waits for so long before places are kept for it; 0: for ever
	DrainFor        time.Duration // they are kept for so long, and then for as long not; 0: without end
	DrainShare      int32         // of 100 nodes with such devices: on so many at most for gangs of one namespace
	DrainTotalShare int32         // and of all
	AnyModelAfter   time.Duration // members wait for the model of those that run for so long; 0: for ever

	DrainNamespaces         []string // places are kept for gangs of these only; empty: of all
	DrainExcludedNamespaces []string // and not of these
}

// drainsFor reports whether places are kept for gangs of a namespace.
func (c *Config) drainsFor(namespace string) bool {
	return (len(c.DrainNamespaces) == 0 || slices.Contains(c.DrainNamespaces, namespace)) && !slices.Contains(c.DrainExcludedNamespaces, namespace)
}
