// SPDX-License-Identifier: Apache-2.0

package interposer

import "time"

// Patient gives answers, and Steering's part of them, as much time as a busy machine takes,
// unless Within has said how much.
func (c Config) Patient() Config {
	if c.budget == 0 {
		c.steering, c.budget = 4*time.Minute, 5*time.Minute
	}
	return c
}

// Within gives an answer so much time.
func (c Config) Within(budget time.Duration) Config {
	c.budget = budget
	return c
}
