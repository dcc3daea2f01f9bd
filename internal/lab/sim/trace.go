// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/fabric"
)

// maxJobs bounds a trace.
const maxJobs = 10_000_000

// ReadTrace reads a trace in CSV. Its header is either
//
//	arrival_s,duration_s,gpus,pods
//
// in any order, where pods, the size of the gang, may be left out and is 1 then; or
// it has columns of Alibaba's openb pod lists, of which num_gpu is needed. Of those:
//
//   - pods without GPUs are left out;
//   - a pod that asks for a part of a GPU (gpu_milli) gets a whole one;
//   - a pod arrives at its creation_time and runs from its scheduled_time, else its
//     creation_time, to its deletion_time;
//   - in a list without creation times pods arrive in an order drawn from the seed,
//     one a second on average (a Poisson process: give Config.Load);
//   - a duration without deletion_time is drawn as for multigpu50 of Synthetic.
func ReadTrace(r io.Reader, seed uint64) ([]Job, error) {
	t := &table{csv: csv.NewReader(r)}
	t.csv.ReuseRecord = true
	header, err := t.csv.Read()
	if errors.Is(err, io.EOF) {
		return nil, errors.New("empty, want a header")
	}
	if err != nil {
		return nil, err
	}
	header[0] = strings.TrimPrefix(header[0], "\ufeff") // spreadsheets write a byte order mark
	if !slices.Contains(header, openbGPUs) {
		if err := t.index(header, ownColumns, colArrival, colDuration, colGPUs); err != nil {
			return nil, err
		}
		return t.jobs(ownJob)
	}
	if err := t.index(header, openbColumns, openbGPUs); err != nil {
		return nil, err
	}
	o := newOpenb(seed)
	jobs, err := t.jobs(o.job)
	if err == nil {
		o.finish(jobs)
	}
	return jobs, err
}

// The columns of our own traces.
const (
	colArrival  = "arrival_s"
	colDuration = "duration_s"
	colGPUs     = "gpus"
	colPods     = "pods"
)

var ownColumns = []string{colArrival, colDuration, colGPUs, colPods}

func ownJob(t *table) (j Job, ok bool, err error) {
	j.Pods = 1
	if j.ArrivalS, err = t.seconds(colArrival); err != nil {
		return Job{}, false, err
	}
	if j.DurationS, err = t.seconds(colDuration); err != nil {
		return Job{}, false, err
	}
	if j.DurationS == 0 {
		return Job{}, false, t.at(colDuration, errors.New("a job of no time"))
	}
	if j.GPUs, err = t.number(colGPUs, 1, nvtopo.MaxGPUs); err != nil {
		return Job{}, false, err
	}
	if t.has(colPods) {
		if j.Pods, err = t.number(colPods, 1, maxPods); err != nil {
			return Job{}, false, err
		}
	}
	return j, true, nil
}

// table is a CSV file whose columns are found by name.
type table struct {
	csv    *csv.Reader
	header string // as it should be written again
	column map[string]int
	row    []string
}

// index finds the columns. Unknown ones are errors, since they are misspelt ones.
func (t *table) index(header, known []string, needed ...string) error {
	t.column, t.header = map[string]int{}, strings.Join(header, ",")
	for i, name := range header {
		_, column := t.csv.FieldPos(i)
		if _, twice := t.column[name]; twice {
			return fmt.Errorf("line 1, column %d: %q is there twice", column, name)
		}
		if !slices.Contains(known, name) {
			return fmt.Errorf("line 1, column %d: unknown column %q, want of %s", column, name, strings.Join(known, ","))
		}
		t.column[name] = i
	}
	for _, name := range needed {
		if _, ok := t.column[name]; !ok {
			return fmt.Errorf("line 1: no column %q", name)
		}
	}
	return nil
}

// jobs reads all rows; read returns false for rows that are no job.
func (t *table) jobs(read func(*table) (Job, bool, error)) ([]Job, error) {
	var out []Job
	for {
		var err error
		if t.row, err = t.csv.Read(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, fabric.RowError(err, len(t.row), t.header)
		}
		j, ok, err := read(t)
		if err != nil {
			return nil, err
		}
		if !ok {
			continue
		}
		if len(out) == maxJobs {
			return nil, fmt.Errorf("more than %d jobs", maxJobs)
		}
		out = append(out, j)
	}
	if len(out) == 0 {
		return nil, errors.New("no jobs")
	}
	return out, nil
}

// has reports whether the row has something in a column.
func (t *table) has(column string) bool {
	i, ok := t.column[column]
	return ok && t.row[i] != ""
}

// at returns err with the line, the column and the value of the row.
func (t *table) at(column string, err error) error {
	i := t.column[column]
	line, c := t.csv.FieldPos(i)
	return fmt.Errorf("line %d, column %d: %s %q: %w", line, c, column, t.row[i], err)
}

func (t *table) seconds(column string) (float64, error) {
	v, err := strconv.ParseFloat(t.row[t.column[column]], 64)
	if err != nil || math.IsNaN(v) || v < 0 || v > maxSeconds {
		return 0, t.at(column, fmt.Errorf("want seconds from 0 to %g", float64(maxSeconds)))
	}
	return v, nil
}

func (t *table) number(column string, least, most int) (int, error) {
	v, err := strconv.Atoi(t.row[t.column[column]])
	if err != nil || v < least || v > most {
		return 0, t.at(column, fmt.Errorf("want a whole number from %d to %d", least, most))
	}
	return v, nil
}
