// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
)

// sizeText matches a number with an SI or IEC prefix in upper or lower case; the unit B may be left out.
var sizeText = regexp.MustCompile(`^([0-9]+(?:\.[0-9]+)?) ?([kKmMgGtT]?)([iI]?)[bB]?$`)

// maxSize is the largest message: 1 PB, far above any GPU's memory.
const maxSize = 1e15

// parseSize reads the size of a message in bytes. With binary, prefixes are steps of 1024 up and down from
// the GB that bandwidths are in, so 100 MB is 100/1024 GB. Otherwise they are SI. IEC prefixes (MiB) are
// exact bytes.
func parseSize(s string, binary bool) (float64, error) {
	m := sizeText.FindStringSubmatch(strings.TrimSpace(s))
	if m == nil {
		return 0, fmt.Errorf("%q is not a size such as 100MB, 1.5GB, 64MiB or 4096", s)
	}
	n, err := strconv.ParseFloat(m[1], 64)
	if err != nil {
		return 0, fmt.Errorf("%q: %w", s, err)
	}
	power := float64(strings.Index("KMGT", strings.ToUpper(m[2])) + 1)
	if m[2] == "" {
		power = 0
	}
	const giga = 3
	bytes := n * math.Pow(1000, power)
	switch {
	case m[3] != "" && binary:
		return 0, fmt.Errorf("%q: IEC prefixes cannot be used with --binary-units", s)
	case m[3] != "" && m[2] == "":
		return 0, fmt.Errorf("%q is not a size such as 100MB, 1.5GB, 64MiB or 4096", s)
	case m[3] != "":
		bytes = n * math.Pow(1024, power)
	case binary:
		bytes = n * 1e9 * math.Pow(1024, power-giga)
	}
	if !(bytes > 0 && bytes <= maxSize) {
		return 0, fmt.Errorf("%q: want more than 0 and at most 1000 TB", s)
	}
	return bytes, nil
}
