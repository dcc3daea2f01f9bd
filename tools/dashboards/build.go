// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"

	"github.com/grafana/grafana-foundation-sdk/go/common"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/prometheus"
	"github.com/grafana/grafana-foundation-sdk/go/timeseries"
)

// board is one dashboard.
type board struct {
	file, uid, title, description string
	rows                          []row
}

type row struct {
	title  string
	panels []panel
}

// panel is a graph over time.
type panel struct {
	title, description string
	unit               string // Grafana's name for it
	queries            []query
}

type query struct{ expr, legend string }

// encode returns the dashboard in Grafana's import format.
func (b *board) encode() ([]byte, error) {
	// The data source is chosen at the import.
	source := common.DataSourceRef{Type: new("prometheus"), Uid: new("${datasource}")}
	//nolint:staticcheck // every Grafana reads this schema, the one that is preferred needs Grafana 12
	builder := dashboard.NewDashboardBuilder(b.title).Uid(b.uid).Description(b.description).Tags([]string{"nvtopo"}).
		Time("now-6h", "now").Refresh("1m").Timezone("browser").
		WithVariable(dashboard.NewDatasourceVariableBuilder("datasource").Label("Prometheus").Type("prometheus"))
	for _, r := range b.rows {
		builder = builder.WithRow(dashboard.NewRowBuilder(r.title))
		for i := range r.panels {
			builder = builder.WithPanel(r.panels[i].build(source))
		}
	}
	built, err := builder.Build()
	if err != nil {
		return nil, fmt.Errorf("build dashboard %q: %w", b.title, err)
	}
	text, err := json.MarshalIndent(built, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encode dashboard %q: %w", b.title, err)
	}
	return append(text, '\n'), nil
}

// most is the greatest value of each unit that has one.
var most = map[string]float64{"percentunit": 1, "percent": 100}

func (p *panel) build(source common.DataSourceRef) *timeseries.PanelBuilder {
	builder := timeseries.NewPanelBuilder().Title(p.title).Description(p.description).Datasource(source).Unit(p.unit).
		Min(0).Span(12).Height(8).
		// A table beside the lines has room for long names.
		Legend(common.NewVizLegendOptionsBuilder().ShowLegend(true).DisplayMode(common.LegendDisplayModeTable).
			Placement(common.LegendPlacementRight).Calcs([]string{"lastNotNull"}).SortBy("Last *").SortDesc(true)).
		Tooltip(common.NewVizTooltipOptionsBuilder().Mode(common.TooltipDisplayModeMulti).Sort(common.SortOrderDescending))
	if top, ok := most[p.unit]; ok {
		builder = builder.Max(top)
	}
	if p.unit == "short" { // a count
		builder = builder.Decimals(0).AxisSoftMax(1) // otherwise the axis of nothing but zeros goes to 100
	}
	for i, q := range p.queries {
		builder = builder.WithTarget(prometheus.NewDataqueryBuilder().Datasource(source).RefId(string(rune('A' + i))).
			Expr(q.expr).LegendFormat(q.legend))
	}
	return builder
}
