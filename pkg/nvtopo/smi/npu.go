// SPDX-License-Identifier: Apache-2.0

package smi

import (
	"errors"
	"regexp"
	"strconv"
	"strings"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// Links of an Ascend NPU whose number npu-smi does not print. HCCS joins two NPUs by one of up to seven
// links, so a mesh has at most 7 peers. All 7, 196 GB/s, go to the switch of an Atlas A3. The two dies of
// a 910C have 270 GB/s in one direction between them (SIO), as much as 9 links, rounded down. Source: the
// CloudMatrix384 paper, arXiv 2506.12708.
const (
	hccsLanes       = 1
	hccsSwitchLanes = 7
	sioLanes        = 9
)

// npuName matches a device of npu-smi: by number, or by physical id on Atlas A3.
var npuName = regexp.MustCompile(`^(NPU|Phy-ID)(0|[1-9][0-9]{0,3})$`)

// ascend is the dialect of `npu-smi info -t topo`.
var ascend = dialect{
	prefix: "NPU-",
	row:    regexp.MustCompile(`^[ \t]*(NPU|Phy-ID)[0-9]+[ \t]+(X|HCCS_SW|HCCS|SIO|PIX|PXB|PHB|SYS|NA)([ \t]|$)`),
	value:  regexp.MustCompile(`^(HCCS_SW|HCCS|SIO|PIX|PXB|PHB|SYS|NA)`),
	want:   "HCCS, HCCS_SW, SIO, PIX, PXB, PHB or SYS",
	cell:   npuCell,
}

func npuCell(s string) (cell, error) {
	hccs := func(lanes int) nvtopo.Class { return nvtopo.Class{Kind: nvtopo.KindHCCS, Lanes: lanes} }
	switch s {
	case "HCCS":
		return cell{class: hccs(hccsLanes)}, nil
	case "HCCS_SW":
		return cell{class: hccs(hccsSwitchLanes), switched: true}, nil
	case "SIO":
		return cell{class: hccs(sioLanes)}, nil
	case "NA":
		return cell{}, errors.New("npu-smi does not know this path (NA)")
	}
	class, err := nvtopo.ParseClass(s)
	return cell{class: class}, err
}

// isNPUHeader reports whether the line names an NPU and then another one or the CPU affinity, or ends
// there.
func isNPUHeader(l *line) bool {
	at, first := l.word(0)
	if !npuName.MatchString(first) {
		return false
	}
	_, second := l.word(at + len(first))
	return second == "" || second == "CPU" || npuName.MatchString(second)
}

// readNPUMatrix finds the matrix and reads it, as readMatrix does for nvidia-smi.
func readNPUMatrix(lines []line) (*matrix, error) {
	for i := range lines {
		l := &lines[i]
		if isNPUHeader(l) {
			m, err := readNPUHeader(l)
			if err != nil {
				return nil, err
			}
			return m, m.readBelow(lines, i)
		}
		if ascend.isRow(l) {
			return nil, l.errorf(l.skipBlanks(0), "row before the header line NPU0, NPU1, …")
		}
	}
	last := &lines[len(lines)-1]
	return nil, last.errorf(len(last.text), "no topology matrix found: no header line NPU0, NPU1, …")
}

func readNPUHeader(l *line) (*matrix, error) {
	m := &matrix{dialect: &ascend, legend: map[string]string{}}
	for at := l.skipBlanks(0); at < len(l.text); {
		if done, err := m.readTitles(l, at); done || err != nil {
			return m, err
		}
		_, name := l.word(at)
		if err := m.addNPU(l, at, name); err != nil {
			return nil, err
		}
		at = l.skipBlanks(at + len(name))
	}
	return m, nil
}

// addNPU appends a device. Containers see some of a machine's NPUs, under their numbers on the machine:
// these have gaps, but ascend.
func (m *matrix) addNPU(l *line, at int, name string) error {
	match := npuName.FindStringSubmatch(name)
	if match == nil {
		return l.errorf(at, "column title %s is neither an NPU nor an affinity", quote(name))
	}
	if m.gpus == nvtopo.MaxGPUs {
		return l.errorf(at, "more than %d NPUs", nvtopo.MaxGPUs)
	}
	n, err := strconv.Atoi(match[2])
	if err != nil {
		return l.errorf(at, "column title %s: %v", quote(name), err)
	}
	if m.gpus > 0 && (!strings.HasPrefix(m.names[0], match[1]) || n <= m.numbers[m.gpus-1]) {
		return l.errorf(at, "column %s after %s: want ascending numbers", name, m.names[m.gpus-1])
	}
	m.names = append(m.names, name)
	m.numbers = append(m.numbers, n)
	m.gpus++
	return nil
}
