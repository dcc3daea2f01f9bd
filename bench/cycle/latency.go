// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"

	"github.com/nvtopo/nvtopo/bench/internal/report"
)

type latency struct{}

func latencies(context.Context, *options) ([]*latency, error) { return nil, nil }

func (r *result) latencyTable() *report.Table { return nil }
