// SPDX-License-Identifier: Apache-2.0

package interposer

import "time"

// Patient gives answers as much time as a plugin takes to come back on a busy machine.
func (c Config) Patient() Config {
	c.budget = time.Minute
	return c
}
