// SPDX-License-Identifier: Apache-2.0

package visible

import (
	"strconv"
	"strings"
)

// Device is one device of the machine: its UUID and the vendor tool's index.
type Device struct {
	ID    string
	Index int
}

// Resolve returns the devices that a name means, and whether that is certain. The toolkit takes an index,
// a UUID or the beginning of one; for a MIG device its UUID or GPU:instance. known are the machine's
// known devices.
func Resolve(name string, known []Device, given []string) ([]string, bool) {
	for _, id := range given {
		if strings.EqualFold(id, name) {
			return []string{id}, true
		}
	}
	if index, err := strconv.Atoi(name); err == nil {
		for i := range known {
			if known[i].Index == index {
				return []string{known[i].ID}, true
			}
		}
		return []string{name}, len(known) > 0
	}
	var ids []string
	for i := range known {
		if hasPrefixFold(known[i].ID, name) {
			ids = append(ids, known[i].ID)
		}
	}
	if len(ids) > 0 {
		return ids, true
	}
	// Only the driver knows which MIG device GPU:instance is.
	if strings.Contains(name, ":") {
		return []string{name}, false
	}
	// The name may be the beginning of a UUID that was given but is not in the graph.
	for _, id := range given {
		if hasPrefixFold(id, name) {
			ids = append(ids, id)
		}
	}
	if len(ids) > 0 {
		return ids, true
	}
	return []string{name}, true
}

// hasPrefixFold reports whether id begins with name, and name is longer than the device kind's prefix.
func hasPrefixFold(id, name string) bool {
	const kind = len("GPU-")
	return len(name) > kind && len(name) <= len(id) && strings.EqualFold(id[:len(name)], name)
}
