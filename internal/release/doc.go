// SPDX-License-Identifier: Apache-2.0

// Package release has a program's version, the namespace in which the programs are installed, and the
// label of installed objects. It reads and writes nothing.
package release
