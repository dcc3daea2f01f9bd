module github.com/nvtopo/nvtopo/tools/dashboards

go 1.26.0

// npm packages have Go packages among them.
ignore ./pictures/node_modules

require github.com/grafana/grafana-foundation-sdk/go v0.0.18
