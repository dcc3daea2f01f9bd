// SPDX-License-Identifier: Apache-2.0

// Package floor is above cellar.
package floor

import "github.com/nvtopo/nvtopo/tools/measure/testdata/house/cellar"

// Cook is an owner of jars.
type Cook struct{ shelf *cellar.Shelf }

// Store passes each jar on.
func (c *Cook) Store(jars []*cellar.Jar) {
	for _, j := range jars {
		c.shelf.Put(j)
	}
}

// Told passes a name on, which is not followed, and the jar by another variable.
func (c *Cook) Told(j *cellar.Jar) {
	write(j.Name)
	kept := j
	look(kept)
}

func write(string) {}

func look(*cellar.Jar) {}
