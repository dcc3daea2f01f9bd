// SPDX-License-Identifier: Apache-2.0

package gangstate

import (
	"slices"
	"time"
)

// Config has the times and limits for gangs. It is one for the process, because a gang may have members
// of several profiles. The zero value evicts no pods and keeps no places.
type Config struct {
	ScheduleTimeout time.Duration // how long a gang that was never whole may be partly bound; 0: for ever
	DrainAfter      time.Duration // how long a gang waits before places are kept for it; 0: for ever
	DrainFor        time.Duration // how long they are kept, and then not kept; 0: without end
	DrainShare      int32         // percentage of the nodes with such devices on which places are kept at most for gangs of one namespace
	DrainTotalShare int32         // the same for all gangs
	AnyModelAfter   time.Duration // how long members wait for the model of the running ones; 0: for ever

	DrainNamespaces         []string // namespaces of the gangs for which places are kept; empty: all
	DrainExcludedNamespaces []string // namespaces that are excluded from these
}

// drainsFor reports whether places are kept for gangs of a namespace.
func (c *Config) drainsFor(namespace string) bool {
	return (len(c.DrainNamespaces) == 0 || slices.Contains(c.DrainNamespaces, namespace)) && !slices.Contains(c.DrainExcludedNamespaces, namespace)
}
