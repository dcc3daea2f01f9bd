// SPDX-License-Identifier: Apache-2.0

// Package proc reads the resources that processes use from proc(5).
package proc
