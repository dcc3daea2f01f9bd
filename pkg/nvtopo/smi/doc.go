// SPDX-License-Identifier: Apache-2.0

// Package smi reads the link graph of a machine from pasted text: the matrix of `nvidia-smi topo -m` (or
// `-mp`) or of `npu-smi info -t topo`, the tables of `rocm-smi --showtopo`, `numactl --hardware`, and
// `lscpu`. The text shows which.
//
// Its one invariant: facts that are not in the text are reported as unknown or as an error with line and
// column, never guessed. A matrix with a missing row, a missing cell or two different values for one pair
// is refused.
//
// Limits of the text:
//
//   - The PCIe level under an NVLink pair: unknown.
//   - Whether an NVLink path is switched. All pairs must have one equal NV#, and
//     either there are 8 GPUs or more, or the links of one GPU to its peers would
//     add up to more than the 18 it has; then it is switched, otherwise direct.
//   - UUIDs: the GPU of index i is called "GPU-i", an NPU "NPU-i".
//   - How many links of HCCS or XGMI join a pair: one, the fewest. npu.go has the
//     values of its other words. XGMI over several hops divides one's bandwidth.
//   - The PCIe path of rocm-smi, except for whether it stays at one CPU: NODE or SYS.
//   - The hyper-threads of a core: unknown, unless lscpu or their number per core is given.
//   - The NUMA node of a GPU whose "NUMA Affinity" is empty, "N/A" or several
//     nodes: unknown, unless exactly one of those nodes has CPUs by numactl. Old
//     drivers print no such column; numa.go has the rule for those.
//
// It does not run any program and does not access hardware; see the sibling packages nvml and machine.
package smi
