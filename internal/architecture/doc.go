// SPDX-License-Identifier: Apache-2.0

// Package architecture has no code: its tests check the table of layers, the packages that a program must
// not link, that all modules use the dependencies they share in one version, and that no test depends on
// the speed of the machine. A new package needs a place in the table of layers. docs/design.md describes
// the task of each package.
package architecture
