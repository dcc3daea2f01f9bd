// SPDX-License-Identifier: Apache-2.0

package proc

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// tick is the unit of times in /proc/PID/stat, USER_HZ, which is 100 on every architecture that
// Go runs on.
const tick = 10 * time.Millisecond

// CPUTime returns the CPU time that a process has used, ended children excluded.
func CPUTime(pid int) (time.Duration, error) {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0, fmt.Errorf("read a process's CPU time: %w", err)
	}
	return parseCPUTime(data)
}

func parseCPUTime(stat []byte) (time.Duration, error) {
	// The second field is the program's name in brackets, which may hold anything.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) < 13 {
		return 0, fmt.Errorf("process state has %d fields after the name", len(fields))
	}
	var sum time.Duration
	for _, f := range fields[11:13] { // utime and stime, fields 14 and 15 of proc(5)
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("process state: %w", err)
		}
		sum += time.Duration(n) * tick
	}
	return sum, nil
}

// Peak returns the most memory that a process ever had resident, in bytes.
func Peak(pid int) (int64, error) { return memory(pid, "VmHWM:") }

// Resident returns the memory that a process has resident, in bytes.
func Resident(pid int) (int64, error) { return memory(pid, "VmRSS:") }

func memory(pid int, field string) (int64, error) {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return 0, fmt.Errorf("read a process's memory: %w", err)
	}
	for line := range strings.Lines(string(data)) {
		value, ok := strings.CutPrefix(line, field)
		if !ok {
			continue
		}
		kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
		if err != nil {
			return 0, fmt.Errorf("process memory: %w", err)
		}
		return kib << 10, nil
	}
	return 0, fmt.Errorf("process %d has no %s", pid, strings.TrimSuffix(field, ":"))
}
