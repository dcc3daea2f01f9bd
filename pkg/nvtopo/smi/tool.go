// SPDX-License-Identifier: Apache-2.0

package smi

// Tool is the program that printed a text.
type Tool uint8

// The tools. NVIDIA is also used for a text that no tool printed: the errors then name the form expected
// in most cases.
const (
	NVIDIA Tool = iota // nvidia-smi topo -m or -mp
	Ascend             // npu-smi info -t topo
	AMD                // rocm-smi --showtopo
)

// String returns the command that prints the text.
func (t Tool) String() string {
	return [...]string{"nvidia-smi topo -m", "npu-smi info -t topo", "rocm-smi --showtopo"}[t]
}

// Resource returns the extended resource under which the vendor's own device plugin offers the
// accelerators.
func (t Tool) Resource() string {
	return [...]string{"nvidia.com/gpu", "huawei.com/Ascend910", "amd.com/gpu"}[t]
}

// toolOf identifies the tool by the first line that only one tool prints.
func toolOf(lines []line) Tool {
	for i := range lines {
		l := &lines[i]
		switch {
		case rocmTitle(l) != "":
			return AMD
		case isNPUHeader(l) || ascend.isRow(l):
			return Ascend
		case isMatrixHeader(lines, i) || nvidia.isRow(l):
			return NVIDIA
		}
	}
	return NVIDIA
}
