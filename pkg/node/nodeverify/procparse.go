// SPDX-License-Identifier: Apache-2.0

package nodeverify

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// maxLine limits a line of numa_maps; the kernel escapes a path of 4096 bytes to four times that.
const maxLine = 64 << 10

// maxNUMA limits the number of a NUMA node: Linux's largest MAX_NUMNODES is 1024.
const maxNUMA = 1023

// status is the parsed content of /proc/PID/status.
type status struct {
	name  string
	cpus  nvtopo.CPUSet // Cpus_allowed_list
	nodes nvtopo.CPUSet // Mems_allowed_list: NUMA nodes
}

// parseStatus parses /proc/PID/status; all three fields must be present.
func parseStatus(text string) (status, error) {
	var s status
	found := map[string]bool{}
	for line := range strings.Lines(text) {
		key, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ":\t")
		var err error
		switch key {
		case "Name":
			s.name = value
		case "Cpus_allowed_list":
			s.cpus, err = nvtopo.ParseCPUList(value)
		case "Mems_allowed_list":
			s.nodes, err = nvtopo.ParseCPUList(value) // the same list format
		default:
			continue
		}
		if err != nil {
			return status{}, fmt.Errorf("%s: %w", key, err)
		}
		found[key] = true
	}
	for _, key := range []string{"Name", "Cpus_allowed_list", "Mems_allowed_list"} {
		if !found[key] {
			return status{}, fmt.Errorf("%s is missing", key)
		}
	}
	return s, nil
}

// stat is the parsed content of /proc/PID/stat or /proc/PID/task/TID/stat.
type stat struct {
	parent int // PID; 0: none in this PID namespace
	cpu    int // on which the thread ran last
}

// Fields of stat after the name in parentheses; proc_pid_stat(5) counts them from 3.
const (
	fieldParent = 4 - 3
	fieldCPU    = 39 - 3
)

// parseStat parses a stat file. The name may contain blanks and parentheses.
func parseStat(text string) (stat, error) {
	end := strings.LastIndexByte(text, ')')
	if end < 0 {
		return stat{}, errors.New("the name in parentheses is missing")
	}
	fields := strings.Fields(text[end+1:])
	if len(fields) <= fieldCPU {
		return stat{}, fmt.Errorf("%d fields after the name, want more than %d", len(fields), fieldCPU)
	}
	parent, err := strconv.ParseUint(fields[fieldParent], 10, 31)
	if err != nil {
		return stat{}, fmt.Errorf("ppid: %q is no process", fields[fieldParent])
	}
	cpu, err := strconv.ParseUint(fields[fieldCPU], 10, 31)
	if err != nil {
		return stat{}, fmt.Errorf("processor: %q is no CPU", fields[fieldCPU])
	}
	return stat{parent: int(parent), cpu: int(cpu)}, nil
}

// parseNUMAMaps returns the bytes of /proc/PID/numa_maps by NUMA node, as numastat -p does: of each
// mapping the pages N0=…, N1=… in its own page size.
func parseNUMAMaps(r io.Reader) (map[int]int64, error) {
	bytes := map[int]int64{}
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxLine)
	for no := 1; lines.Scan(); no++ {
		if err := addMapping(bytes, lines.Text()); err != nil {
			return nil, fmt.Errorf("line %d: %w", no, err)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	return bytes, nil
}

// addMapping adds the pages of one mapping.
func addMapping(bytes map[int]int64, line string) error {
	pages := map[int]int64{}
	size := int64(0) // of a page, in KiB
	for field := range strings.FieldsSeq(line) {
		key, value, ok := strings.Cut(field, "=")
		node, isNode := strings.CutPrefix(key, "N")
		var err error
		switch {
		case !ok:
		case key == "kernelpagesize_kB":
			size, err = parseAmount(value)
		case isNode && node != "" && strings.Trim(node, "0123456789") == "":
			var id int
			if id, err = strconv.Atoi(node); err != nil || id > maxNUMA {
				return fmt.Errorf("field %q: want a NUMA node up to %d", field, maxNUMA)
			}
			pages[id], err = parseAmount(value)
		}
		if err != nil {
			return fmt.Errorf("field %q: %w", field, err)
		}
	}
	if len(pages) > 0 && size == 0 {
		return errors.New("kernelpagesize_kB is missing")
	}
	for id, n := range pages {
		if size > math.MaxInt32 || n > (math.MaxInt64-bytes[id])/(size<<10) {
			return fmt.Errorf("NUMA node %d: too many pages", id)
		}
		bytes[id] += n * size << 10
	}
	return nil
}

func parseAmount(s string) (int64, error) {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 0 {
		return 0, fmt.Errorf("%q is not an amount", s)
	}
	return n, nil
}

// parseEnviron splits /proc/PID/environ into NAME=VALUE.
func parseEnviron(text string) []string {
	var all []string
	for part := range strings.SplitSeq(text, "\x00") {
		if strings.Contains(part, "=") {
			all = append(all, part)
		}
	}
	return all
}

// parseCgroup returns the paths of /proc/PID/cgroup, one for each hierarchy.
func parseCgroup(text string) ([]string, error) {
	var paths []string
	for line := range strings.Lines(text) {
		parts := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(parts) != 3 {
			return nil, fmt.Errorf("line %q: want ID:CONTROLLERS:PATH", line)
		}
		paths = append(paths, parts[2])
	}
	return paths, nil
}
