// SPDX-License-Identifier: Apache-2.0

// Package architecture has no code: its tests are the table of layers, of what a program
// must not link, that all modules take what they share in one version, and that no test
// depends on how fast the machine is. A new package needs a place in the table of layers.
// docs/design.md says what each package owns.
package architecture
