// SPDX-License-Identifier: Apache-2.0

package generate

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

const gib = 1 << 30

// Docker is a container with the given GPUs and the resources near them.
type Docker struct {
	GPUs              []int // indices, as nvidia-smi counts them
	CPUs              nvtopo.CPUSet
	MemNodes          []int // NUMA nodes to take memory from; none: any
	Memory            int64 // bytes; the limit
	MemoryReservation int64 // bytes; the amount that the kernel tries to leave the container when memory is short
	SharedMemory      int64 // bytes of /dev/shm, a part of the container's memory
	CPUShares         int   // weight against other containers on the same CPUs; Docker's default is 1024
	Name              string
	Image             string
	Command           []string
}

// Write returns the command line, for a POSIX shell.
func (d *Docker) Write() ([]byte, error) {
	if err := d.check(); err != nil {
		return nil, err
	}
	lines := []string{"docker run --rm"}
	if d.Name != "" {
		lines = append(lines, "--name="+quote(d.Name))
	}
	// Docker reads --gpus as CSV, so a list of devices needs quotes of its own.
	lines = append(lines, "--gpus "+quote(`"device=`+joinInts(d.GPUs)+`"`), "--cpuset-cpus="+d.CPUs.String())
	if len(d.MemNodes) > 0 {
		lines = append(lines, "--cpuset-mems="+joinInts(d.MemNodes))
	}
	lines = append(
		lines, fmt.Sprintf("--cpus=%d", len(d.CPUs)), fmt.Sprintf("--cpu-shares=%d", d.CPUShares),
		"--memory="+dockerSize(d.Memory), "--memory-reservation="+dockerSize(d.MemoryReservation),
		"--shm-size="+dockerSize(d.SharedMemory),
	)
	for _, e := range openMP(len(d.CPUs), len(d.GPUs)) {
		lines = append(lines, "-e "+e.Name+"="+quote(e.Value))
	}
	lines = append(lines, CommandLine(append([]string{d.Image}, d.Command...)))
	return []byte(strings.Join(lines, " \\\n  ") + "\n"), nil
}

func (d *Docker) check() error {
	switch {
	case len(d.GPUs) == 0 || len(d.CPUs) == 0:
		return errors.New("want one GPU and one CPU or more")
	case d.Image == "" || strings.HasPrefix(d.Image, "-"):
		return fmt.Errorf("image %q: want the name of an image", d.Image)
	case d.CPUShares < 2 || d.CPUShares > 262144: // the kernel's bounds of cpu.shares
		return fmt.Errorf("CPU shares %d: want 2 to 262144", d.CPUShares)
	case d.Memory < 6*mib: // Docker's minimum
		return fmt.Errorf("memory of %d bytes: want 6 MiB or more", d.Memory)
	case d.MemoryReservation < 6*mib || d.MemoryReservation > d.Memory:
		return fmt.Errorf("memory reservation of %d bytes: want 6 MiB or more, and no more than the memory of %d bytes", d.MemoryReservation, d.Memory)
	case d.SharedMemory < 1 || d.SharedMemory >= d.Memory:
		return fmt.Errorf("shared memory of %d bytes: want some, and less than the memory of %d bytes, of which it is a part", d.SharedMemory, d.Memory)
	}
	return nil
}

// dockerSize writes bytes in the largest of Docker's units, which are binary, that is exact.
func dockerSize(bytes int64) string {
	switch {
	case bytes%gib == 0:
		return strconv.FormatInt(bytes/gib, 10) + "g"
	case bytes%mib == 0:
		return strconv.FormatInt(bytes/mib, 10) + "m"
	}
	return strconv.FormatInt(bytes, 10) + "b"
}

func joinInts(numbers []int) string {
	parts := make([]string, len(numbers))
	for i, n := range numbers {
		parts[i] = strconv.Itoa(n)
	}
	return strings.Join(parts, ",")
}
