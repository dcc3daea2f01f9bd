// SPDX-License-Identifier: Apache-2.0

package slurm

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/nvtopo/nvtopo/pkg/nvtopo/fabric"
)

// maxName bounds a host name in bytes, as DNS does.
const maxName = 253

// Hosts expands a list of hosts such as "login,rack[0-1]node[01-16,20]": names separated by
// commas, each with any number of brackets, in them numbers and ranges. A number keeps the
// leading zeros that it is written with. The order is that of the text, the last bracket
// counting fastest.
func Hosts(list string) ([]string, error) {
	var out []string
	for list != "" {
		name, rest, err := cutName(list)
		if err != nil {
			return nil, err
		}
		names, err := expand(name, fabric.MaxNodes-len(out))
		if err != nil {
			return nil, fmt.Errorf("%q: %w", name, err)
		}
		out = append(out, names...)
		if list = rest; list == "," {
			return nil, errors.New("a name is missing after the last comma")
		}
		list = strings.TrimPrefix(list, ",")
	}
	if len(out) == 0 {
		return nil, errors.New("no names")
	}
	return out, nil
}

// cutName cuts the list at the first comma outside of brackets, which stays in rest.
func cutName(list string) (name, rest string, err error) {
	inside := false
	for i, c := range []byte(list) {
		switch {
		case c == '[' && !inside:
			inside = true
		case c == ']' && inside:
			inside = false
		case c == '[' || c == ']':
			return "", "", fmt.Errorf("%q: a bracket inside of brackets, or one that was not opened", list[:i+1])
		case c == ',' && !inside:
			return list[:i], list[i:], nil
		}
	}
	if inside {
		return "", "", fmt.Errorf("%q: a bracket is not closed", list)
	}
	return list, "", nil
}

// expand writes out one name with its brackets, at most so many.
func expand(name string, most int) ([]string, error) {
	out := []string{""}
	for name != "" {
		text, after, bracket := strings.Cut(name, "[")
		inside, rest, _ := strings.Cut(after, "]")
		name = rest
		numbers := []string{""}
		if bracket {
			var err error
			if numbers, err = ranges(inside, most/len(out)); err != nil {
				return nil, err
			}
		}
		longer := make([]string, 0, len(out)*len(numbers))
		for _, begin := range out {
			for _, n := range numbers {
				longer = append(longer, begin+text+n)
			}
		}
		out = longer
	}
	if out[0] == "" {
		return nil, errors.New("a name is empty")
	}
	if len(out) > most {
		return nil, fmt.Errorf("more than %d names", fabric.MaxNodes)
	}
	for _, name := range out {
		if len(name) > maxName {
			return nil, fmt.Errorf("a name of more than %d characters", maxName)
		}
	}
	return out, nil
}

// ranges writes out what is between brackets, at most so many numbers.
func ranges(text string, most int) (out []string, err error) {
	for part := range strings.SplitSeq(text, ",") {
		low, high, isRange := strings.Cut(part, "-")
		if !isRange {
			high = low
		}
		from, err := number(low)
		if err != nil {
			return nil, err
		}
		to, err := number(high)
		if err != nil {
			return nil, err
		}
		if to < from {
			return nil, fmt.Errorf("the range %s runs backwards", part)
		}
		if to-from >= most-len(out) {
			return nil, fmt.Errorf("more than %d names", fabric.MaxNodes)
		}
		for n := from; n <= to; n++ {
			out = append(out, fmt.Sprintf("%0*d", len(low), n))
		}
	}
	return out, nil
}

func number(text string) (int, error) {
	const digits = 9
	n, err := strconv.ParseUint(text, 10, 32)
	if err != nil || len(text) > digits {
		return 0, fmt.Errorf("%q in brackets: want a number of up to %d digits", text, digits)
	}
	return int(n), nil
}
