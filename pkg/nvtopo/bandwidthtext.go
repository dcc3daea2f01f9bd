// SPDX-License-Identifier: Apache-2.0

package nvtopo

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
)

// maxGBps is the greatest bandwidth that ParseBandwidth accepts, in GB/s: a hundred times the fastest
// known link. It keeps kB/s far from overflow.
const maxGBps = 1e6

var (
	// bandwidthUnit matches a number with a unit: an SI prefix, bytes or bits, and a second.
	bandwidthUnit = regexp.MustCompile(`^(.*?)[\s\v]*([kKMGT]?)(B|b|bit)(/s|ps)$`)
	// bareUnit matches a number with a prefix, and perhaps bytes or bits, but no unit of time.
	bareUnit = regexp.MustCompile(`^([0-9.]+)[\s\v]*([kKMGT])(i?[Bb]|bit)?$`)
)

// bitsPerByte converts bits to bytes.
const bitsPerByte = 8

// ParseBandwidth parses a bandwidth into kB/s: a number of GB/s, or one with a unit such as 100GB/s,
// 800Gb/s or 800Gbps, of which b is a bit and B a byte. A number with a prefix alone, such as 100G, is
// refused because it is used for both.
func ParseBandwidth(text string) (kBps int64, err error) {
	s := strings.TrimSpace(text)
	scale := 1.0 // to GB/s
	if m := bandwidthUnit.FindStringSubmatch(s); m != nil {
		s = m[1]
		scale = math.Pow(1000, float64(strings.Index("KMGT", strings.ToUpper(m[2]))-2))
		if m[2] == "" {
			scale = 1e-9
		}
		if m[3] != "B" {
			scale /= bitsPerByte
		}
	} else if m := bareUnit.FindStringSubmatch(s); m != nil {
		return 0, fmt.Errorf("%.64q may mean bytes or bits in a second: write %s%sB/s, or %s%sb/s, which is an eighth of that", text, m[1], m[2], m[1], m[2])
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil {
		return 0, fmt.Errorf("%.64q is not a number of GB/s, or one with a unit such as 100GB/s or 800Gb/s", text)
	}
	if f *= scale; !(f > 0 && f <= maxGBps) {
		return 0, fmt.Errorf("%.64q: want more than 0 and at most %.0f GB/s", text, float64(maxGBps))
	}
	if kBps = int64(math.Round(f * 1e6)); kBps == 0 {
		return 0, fmt.Errorf("%.64q is less than 1 kB/s", text)
	}
	return kBps, nil
}
