// SPDX-License-Identifier: Apache-2.0

// Package live implements package nvml's interfaces with the real driver, through go-nvml. It translates
// calls and errors and decides nothing.
//
// go-nvml binds symbols lazily: calling one that the installed driver lacks ends the process with a
// loader error, which no Go code can catch. So every call is looked up before it is made.
package live
