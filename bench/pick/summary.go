// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/nvtopo/nvtopo/bench/internal/report"
)

// summary is one picker over all questions for machines of one size.
type summary struct {
	Picker  string  `json:"picker"`
	GPUs    int     `json:"gpus"`
	Cases   int     `json:"cases"`
	Median  float64 `json:"medianNs"` // over the cases, each the median of its repeats
	Lower   float64 `json:"lowerQuartileNs"`
	Upper   float64 `json:"upperQuartileNs"`
	Worst   float64 `json:"worstNs"`
	Ratio   float64 `json:"ratioToOurs"` // median of the ratios case by case
	Choices int     `json:"casesWithChoice"`
	Regret  float64 `json:"meanRegretGBps"` // of the picks that did not fail
	Optimal float64 `json:"optimalPercent"` // a failed pick is not optimal
	Failed  int     `json:"failed"`
	quality bool
}

// summarise requires results of one size, whose first outcome is ours.
func summarise(results []result) []summary {
	var out []summary
	for at := range results[0].Outcomes {
		s := summary{Picker: results[0].Outcomes[at].Picker, GPUs: results[0].GPUs, Cases: len(results)}
		s.quality = s.Picker != emptyRead
		var ns, ratios, regrets report.Sample
		for i := range results {
			o := &results[i].Outcomes[at]
			took := o.NS.Median()
			ns = append(ns, took)
			ratios = append(ratios, took/results[i].Outcomes[0].NS.Median())
			if o.Failed != "" {
				s.Failed++
			}
			if !results[i].Choice {
				continue
			}
			s.Choices++
			if o.Failed == "" {
				regrets = append(regrets, o.RegretGBps)
				s.Optimal += 100 * o.Optimal
			}
		}
		s.Median, s.Worst, s.Ratio = ns.Median(), ns.Max(), ratios.Median()
		s.Lower, s.Upper = ns.Quartiles()
		s.Optimal /= float64(max(1, s.Choices))
		if len(regrets) > 0 {
			s.Regret = regrets.Mean()
		}
		out = append(out, s)
	}
	return out
}

func pickTable(summaries []summary, machines []string, limit float64) *report.Table {
	t := &report.Table{
		Title: fmt.Sprintf("One pick on machines of %d GPUs (%s): %d cases, %d of them with a choice",
			summaries[0].GPUs, strings.Join(machines, ", "), summaries[0].Cases, summaries[0].Choices),
		Header: []string{"picker", "median", "quartiles", "worst", "ratio to ours", "mean regret GB/s", "optimal %", "failed"},
	}
	for i := range summaries {
		s := &summaries[i]
		quality := []string{"", "", ""}
		if s.quality {
			quality = []string{fmt.Sprintf("%.2f", s.Regret), fmt.Sprintf("%.1f", s.Optimal), strconv.Itoa(s.Failed)}
		}
		t.Add(append([]string{s.Picker, duration(s.Median), duration(s.Lower) + " - " + duration(s.Upper), capped(s.Worst, limit), significant(s.Ratio)}, quality...)...)
	}
	return t
}

// sizesTable returns the cost by k on the empty machines: medians over the
// machines.
func sizesTable(results []result, limit float64) *report.Table {
	t := &report.Table{
		Title:  fmt.Sprintf("One pick by k, all %d GPUs free (median of the machines)", results[0].GPUs),
		Header: []string{"k"},
	}
	for i := range results[0].Outcomes {
		t.Header = append(t.Header, results[0].Outcomes[i].Picker)
	}
	for k := 1; k <= results[0].GPUs; k++ {
		row := []string{strconv.Itoa(k)}
		for at := range results[0].Outcomes {
			var ns report.Sample
			for i := range results {
				if results[i].K == k && len(results[i].Free) == results[i].GPUs {
					ns = append(ns, results[i].Outcomes[at].NS.Median())
				}
			}
			if len(ns) > 0 {
				row = append(row, capped(ns.Median(), limit))
			}
		}
		if len(row) == len(t.Header) {
			t.Rows = append(t.Rows, row)
		}
	}
	return t
}

func readTable(reads []readRatio) *report.Table {
	t := &report.Table{
		Title:  "Ours against an empty table read, the same random walk over free sets and k",
		Header: []string{"machine, mode", "ours ns", "empty read ns", "ratio", "quartiles", "least"},
	}
	for i := range reads {
		r := &reads[i]
		ratios := r.ratios()
		lo, hi := ratios.Quartiles()
		t.Add(r.Machine+", "+r.Mode, fmt.Sprintf("%.2f", r.Ours.Median()), fmt.Sprintf("%.2f", r.Empty.Median()),
			fmt.Sprintf("%.2f", ratios.Median()), fmt.Sprintf("%.2f - %.2f", lo, hi), fmt.Sprintf("%.2f", ratios.Min()))
	}
	return t
}

func buildTable(builds []build) *report.Table {
	t := &report.Table{
		Title:  "Building the tables of one graph class",
		Header: []string{"machine", "NewTables", "and the first answer table", "and all of them", "answer tables", "KiB per class"},
	}
	cell := func(us report.Sample) string {
		if len(us) == 0 {
			return ""
		}
		lo, hi := us.Quartiles()
		return fmt.Sprintf("%s (%s - %s)", duration(us.Median()*1e3), duration(lo*1e3), duration(hi*1e3))
	}
	for i := range builds {
		b := &builds[i]
		t.Add(b.Machine, cell(b.New), cell(b.First), cell(b.All), strconv.Itoa(b.Tables), fmt.Sprintf("%.1f", float64(b.Bytes)/1024))
	}
	return t
}

// duration prints nanoseconds with three significant digits.
func duration(ns float64) string {
	for _, u := range []struct {
		name string
		size float64
	}{{"s", 1e9}, {"ms", 1e6}, {"µs", 1e3}} {
		if ns >= 0.9995*u.size {
			return significant(ns/u.size) + " " + u.name
		}
	}
	return significant(ns) + " ns"
}

// capped formats a duration that may be the limit, at which a pick is stopped.
func capped(ns, limit float64) string {
	if ns >= limit {
		return "> " + duration(limit)
	}
	return duration(ns)
}

// significant prints three significant digits without an exponent, at most
// three decimals, and whole numbers from 100 on.
func significant(v float64) string {
	if v <= 0 {
		return "0"
	}
	// A value that rounds up to the next power of ten has its digits.
	digits := min(2-int(math.Floor(math.Log10(v*1.0005))), 3)
	return strconv.FormatFloat(v, 'f', max(0, digits), 64)
}
