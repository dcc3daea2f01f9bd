// SPDX-License-Identifier: Apache-2.0

package nvtopo

// PickUsable is Pick on a machine some of whose GPUs are degraded. These belong to
// no set of two or more, so what stays free is worth what it is without them. A
// single GPU therefore costs nothing if it is a degraded one: the lowest of these
// comes first, and only where none will do an intact one is taken.
func (t *Tables) PickUsable(free, degraded, allowed Mask, k int, con Constraint) (Mask, bool) {
	if degraded == 0 {
		return t.Pick(free, allowed, k, con)
	}
	if alone := free & degraded & allowed & t.c.all; k == 1 && alone != 0 {
		return alone & -alone, true
	}
	return t.Pick(free&^degraded, allowed, k, con)
}
