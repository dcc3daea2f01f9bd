// SPDX-License-Identifier: Apache-2.0

// Package architecture has no code: its test is the table of layers, and of what a program
// must not link. Whoever adds a package gives it a place there. docs/design.md says what
// each package owns.
package architecture
