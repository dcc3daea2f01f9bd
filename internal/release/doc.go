// SPDX-License-Identifier: Apache-2.0

// Package release tells of which version a program is, in which namespace the programs are
// installed, and which label marks what is installed. It reads and writes nothing.
package release
