// SPDX-License-Identifier: Apache-2.0

// Command pick measures the cost and the quality of choosing GPUs on one machine: ours from the table
// and without it, and the alternatives that a user has, on machines of 8, 16 and 20 GPUs.
//
// Its one invariant: every picker answers the same questions in the same run, and the best choice is
// computed by brute force (package oracle) that shares no code with the tables, only the graph they are
// made from. A picker that fails, or takes longer than the limit, is listed as having failed; its case
// is not dropped.
//
// It does not choose among machines; see bench/quality.
package main
