// SPDX-License-Identifier: Apache-2.0

package smi

import (
	"io"
	"regexp"
	"strconv"
	"strings"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// The lines of `nvidia-smi -L`, for example
//
//	GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-5f3c…)
//	  MIG 1g.5gb      Device  0: (UUID: MIG-c7a1…)
var (
	listedGPU   = regexp.MustCompile(`^GPU ([0-9]{1,3}): (.+) \(UUID: (\S+)\)$`)
	listedSlice = regexp.MustCompile(`^MIG (\S+) +Device +[0-9]+: \(UUID: (\S+)\)$`)
)

// ParseList parses the output of `nvidia-smi -L`: index, model and UUID of each GPU, and its MIG devices.
// Other lines around them are ignored. NUMA nodes are not known. Errors in the text are *SyntaxError.
func ParseList(r io.Reader) ([]nvtopo.GPU, error) {
	lines, err := readLines(r)
	if err != nil {
		return nil, err
	}
	var gpus []nvtopo.GPU
	seen := map[string]bool{}
	for i := range lines {
		l := &lines[i]
		text := strings.TrimSpace(l.text)
		uuid := ""
		switch gpu, slice := listedGPU.FindStringSubmatch(text), listedSlice.FindStringSubmatch(text); {
		case gpu != nil:
			index, err := strconv.Atoi(gpu[1])
			if err != nil || len(gpus) == maxDevices {
				return nil, l.errorf(l.skipBlanks(0), "more than %d GPUs", maxDevices)
			}
			uuid = gpu[3]
			gpus = append(gpus, nvtopo.GPU{Index: index, Model: gpu[2], UUID: uuid, NUMANode: nvtopo.UnknownNUMA})
		case slice != nil && len(gpus) > 0:
			uuid = slice[2]
			last := &gpus[len(gpus)-1]
			last.MIG, last.Slices = true, append(last.Slices, nvtopo.Slice{Profile: slice[1], UUID: uuid})
		case strings.HasPrefix(text, "GPU ") || strings.HasPrefix(text, "MIG "):
			return nil, l.errorf(l.skipBlanks(0), `want "GPU N: MODEL (UUID: …)" or below it "MIG PROFILE Device N: (UUID: …)"`)
		default:
			continue
		}
		if seen[uuid] {
			return nil, l.errorf(l.skipBlanks(0), "%s is listed twice", quote(uuid))
		}
		seen[uuid] = true
	}
	return gpus, nil
}
