// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// outputFlag is the form of the answer.
type outputFlag string

func (o *outputFlag) bind(cmd *cobra.Command) {
	cmd.Flags().StringVarP((*string)(o), "output", "o", "text", "form of the answer: text or json")
}

func (o outputFlag) check() error {
	if o != "text" && o != "json" {
		return usagef("--output %q: want text or json", string(o))
	}
	return nil
}

// write prints the answer in the chosen form.
func (o outputFlag) write(w io.Writer, answer any, text func(io.Writer) error) error {
	if o == "json" {
		data, err := json.Marshal(answer)
		if err != nil {
			return fmt.Errorf("writing JSON: %w", err)
		}
		_, err = fmt.Fprintf(w, "%s\n", data)
		return err
	}
	var b strings.Builder
	if err := text(&b); err != nil {
		return err
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// gbps writes a bandwidth for people, with no more digits than it has.
func gbps(kBps int64) string { return strconv.FormatFloat(nvtopo.GBps(kBps), 'f', -1, 64) }

// parseGBps reads a bandwidth flag in GB/s; 0 means that the flag is not given.
func parseGBps(flag string, value float64) (int64, error) {
	const most = 1e6 // a hundred times the fastest link; keeps kB/s far from overflow
	if math.IsNaN(value) || value <= 0 || value > most || value*1e6 < 1 {
		return 0, usagef("%s %v: want GB/s above 0 and at most %g", flag, value, most)
	}
	return int64(math.Round(value * 1e6)), nil
}
