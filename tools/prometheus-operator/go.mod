// The definitions of the Prometheus operator's kinds, for tests: nothing of it is compiled.
module github.com/nvtopo/nvtopo/tools/prometheus-operator

go 1.26.0

require github.com/prometheus-operator/prometheus-operator v0.85.0
