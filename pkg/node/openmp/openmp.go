// SPDX-License-Identifier: Apache-2.0

package openmp

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// Variables that may name CPUs.
const (
	Places      = "OMP_PLACES"
	GNUAffinity = "GOMP_CPU_AFFINITY"
	KMPAffinity = "KMP_AFFINITY"

	procBind = "OMP_PROC_BIND"
)

const (
	// maxCPU limits CPU numbers: Linux's largest NR_CPUS is 8192.
	maxCPU = 8191
	// maxNamed limits how many CPUs one variable names, repetitions included.
	maxNamed = 4 * maxCPU
)

// Binding is one variable that names CPUs.
type Binding struct {
	Variable string
	CPUs     nvtopo.CPUSet
	Err      error // reading error of the value; CPUs is empty then
}

// Bindings returns the variables of an environment (NAME=VALUE, of one name the last is used) that name
// numbered CPUs. Names of places, such as cores, are not numbers. OMP_PROC_BIND=false turns all of them
// off.
func Bindings(environment []string) []Binding {
	values := map[string]string{}
	for _, e := range environment {
		if name, value, ok := strings.Cut(e, "="); ok {
			values[name] = strings.TrimSpace(value)
		}
	}
	if strings.EqualFold(values[procBind], "false") {
		return nil
	}
	var all []Binding
	for _, v := range []struct {
		name string
		read func(string) (named, error)
	}{{Places, readPlaces}, {GNUAffinity, readAffinity}, {KMPAffinity, readKMP}} {
		cpus, err := v.read(values[v.name])
		switch {
		case err != nil:
			all = append(all, Binding{Variable: v.name, Err: err})
		case len(cpus) > 0:
			all = append(all, Binding{Variable: v.name, CPUs: nvtopo.NewCPUSet(cpus...)})
		}
	}
	return all
}

// maxList limits a list of CPUs in a sentence, in characters: a tenant may name every second of 8192.
const maxList = 128

// Outside returns a sentence about the variables that name CPUs outside allowed, or "" if none does. It
// lists those CPUs, and the beginning of long lists. Unreadable values are left out.
func Outside(environment []string, allowed nvtopo.CPUSet) string {
	var parts []string
	for _, b := range Bindings(environment) {
		if far := b.CPUs.Minus(allowed); b.Err == nil && len(far) > 0 {
			parts = append(parts, b.Variable+" names CPUs "+beginning(far))
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return strings.Join(parts, " and ") + "; the container may use " + beginning(allowed)
}

// beginning returns the list, cut after a CPU or a range if it is longer than maxList.
func beginning(cpus nvtopo.CPUSet) string {
	list := cpus.String()
	if len(list) <= maxList {
		return list
	}
	return list[:max(0, strings.LastIndexByte(list[:maxList+1], ','))] + ",…"
}

// named holds CPU numbers, which may repeat.
type named []int

// add appends count CPUs from first on, each stride after the one before.
func (n *named) add(first, count, stride int) error {
	if count < 1 || count > maxNamed-len(*n) {
		return fmt.Errorf("want 1 to %d CPUs in all", maxNamed)
	}
	for i := range count {
		cpu := first + i*stride
		if cpu < 0 || cpu > maxCPU {
			return fmt.Errorf("CPU %d is not among 0 to %d", cpu, maxCPU)
		}
		*n = append(*n, cpu)
	}
	return nil
}

// readAffinity parses GOMP_CPU_AFFINITY: numbers and ranges with strides, such as "0 3 4-10:2".
func readAffinity(value string) (named, error) {
	var all named
	for _, field := range strings.FieldsFunc(value, func(r rune) bool { return r == ',' || r == ' ' || r == '\t' }) {
		span, strideText, strided := strings.Cut(field, ":")
		firstText, lastText, ranged := strings.Cut(span, "-")
		first, err := number(firstText)
		last, stride := first, 1
		if ranged && err == nil {
			last, err = number(lastText)
		}
		if strided && err == nil {
			stride, err = number(strideText)
		}
		switch {
		case err != nil:
			return nil, fmt.Errorf("%.32q: %w", field, err)
		case last < first || stride < 1:
			return nil, fmt.Errorf("%.32q: want a range upwards and a stride of 1 at least", field)
		}
		if err := all.add(first, (last-first)/stride+1, stride); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// readKMP parses the list of processors of KMP_AFFINITY, which is effective for the type explicit only.
func readKMP(value string) (named, error) {
	before, rest, ok := strings.Cut(value, "proclist=[")
	if !ok {
		return nil, nil
	}
	list, after, closed := strings.Cut(rest, "]")
	if !closed {
		return nil, errors.New("proclist has no closing bracket")
	}
	if !strings.Contains(before+after, "explicit") {
		return nil, nil
	}
	return readAffinity(strings.NewReplacer("{", "", "}", "").Replace(list))
}

// readPlaces parses OMP_PLACES: places, such as "{0,1}" and "{0:4}:2:4", with intervals of
// START:COUNT:STRIDE.
func readPlaces(value string) (named, error) {
	if value == "" || value[0] >= 'a' && value[0] <= 'z' || value[0] >= 'A' && value[0] <= 'Z' {
		return nil, nil // the name of a kind of place
	}
	var all named
	for value != "" {
		var place named
		var tail string
		var ok bool
		var err error
		inside, braced := strings.CutPrefix(value, "{")
		if braced {
			list, rest, closed := strings.Cut(inside, "}")
			if !closed {
				return nil, errors.New("a place has no closing brace")
			}
			tail, value, _ = strings.Cut(rest, ",")
			place, err = readPlace(list)
		} else {
			var cpu string
			tail, value, _ = strings.Cut(value, ",")
			cpu, tail, ok = strings.Cut(tail, ":")
			if ok {
				tail = ":" + tail
			}
			place, err = readPlace(cpu)
		}
		if err == nil {
			err = all.repeat(place, tail)
		}
		if err != nil {
			return nil, err
		}
		value = strings.TrimSpace(value)
	}
	return all, nil
}

// readPlace parses the list inside the braces of a place.
func readPlace(list string) (named, error) {
	var place named
	for field := range strings.SplitSeq(list, ",") {
		firstText, tail, _ := strings.Cut(field, ":")
		first, err := number(strings.TrimSpace(firstText))
		if err != nil {
			return nil, fmt.Errorf("%.32q: %w", field, err)
		}
		count, stride, err := interval(tail)
		if err != nil {
			return nil, fmt.Errorf("%.32q: %w", field, err)
		}
		if err := place.add(first, count, stride); err != nil {
			return nil, err
		}
	}
	return place, nil
}

// repeat adds a place as often as the ":COUNT:STRIDE" behind it requires.
func (n *named) repeat(place named, behind string) error {
	behind, some := strings.CutPrefix(strings.TrimSpace(behind), ":")
	if !some && behind != "" {
		return fmt.Errorf("%.32q behind a place, want :COUNT:STRIDE", behind)
	}
	count, stride, err := interval(behind)
	if err != nil {
		return err
	}
	for _, cpu := range place {
		if err := n.add(cpu, count, stride); err != nil {
			return err
		}
	}
	return nil
}

// interval parses COUNT:STRIDE, each of which may be left out.
func interval(text string) (count, stride int, err error) {
	count, stride = 1, 1
	if text == "" {
		return count, stride, nil
	}
	countText, strideText, strided := strings.Cut(text, ":")
	if count, err = number(strings.TrimSpace(countText)); err != nil {
		return 0, 0, err
	}
	if strided {
		down, negative := strings.CutPrefix(strings.TrimSpace(strideText), "-")
		if stride, err = number(down); negative {
			stride = -stride
		}
	}
	return count, stride, err
}

// number parses a CPU, a count or a stride.
func number(s string) (int, error) {
	n, err := strconv.ParseUint(s, 10, 32)
	if err != nil || n > maxNamed {
		return 0, fmt.Errorf("want a number up to %d", maxNamed)
	}
	return int(n), nil
}
