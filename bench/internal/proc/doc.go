// SPDX-License-Identifier: Apache-2.0

// Package proc reads what processes use of a machine from proc(5).
package proc
