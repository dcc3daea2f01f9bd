// SPDX-License-Identifier: Apache-2.0
//
// A dashboard's panels, drawn by the components of @grafana/ui, at the places that its JSON says.

import { useState, useEffect } from 'react';
import { createRoot } from 'react-dom/client';
import {
  createTheme, dateTime, EventBusSrv, FieldType, getDisplayProcessor, renderLegendFormat, ThemeContext, toDataFrame,
} from '@grafana/data';
import { GlobalStyles, PanelChrome, PanelContextProvider, TimeSeries } from '@grafana/ui';

const theme = createTheme({ colors: { mode: 'light' } });
// As large as in Grafana: 24 columns, rows of 30 pixels, gaps of 8.
const columns = 24, rowHeight = 30, gap = 8, width = 1360;
const cell = (width + gap) / columns;

// place is where a panel is, in pixels.
function place({ x, y, w, h }) {
  return { left: x * cell, top: y * (rowHeight + gap), width: w * cell - gap, height: h * (rowHeight + gap) - gap };
}

// query has Prometheus evaluate a panel's query, and returns what Grafana calls a frame for each series.
async function query(target, range) {
  const parameters = new URLSearchParams({
    query: target.expr.replaceAll('$__rate_interval', '1m'), start: range.start, end: range.end, step: range.step,
  });
  const answer = await (await fetch(range.prometheus + '/api/v1/query_range?' + parameters)).json();
  if (answer.status !== 'success') {
    throw new Error(target.expr + ': ' + answer.error);
  }
  return answer.data.result.map(({ metric, values }) => {
    const at = new Map(values.map(([time, value]) => [time, Number(value)]));
    const times = [], numbers = [];
    for (let time = range.start; time <= range.end; time += range.step) {
      times.push(time * 1000);
      numbers.push(at.get(time) ?? null);
    }
    const name = target.legendFormat ? renderLegendFormat(target.legendFormat, metric) : JSON.stringify(metric);
    return toDataFrame({
      refId: target.refId,
      fields: [
        { name: 'Time', type: FieldType.time, values: times, config: {} },
        { name: 'Value', type: FieldType.number, values: numbers, labels: metric, config: { displayNameFromDS: name } },
      ],
    });
  });
}

// configure gives a frame the options of its panel, as Grafana does for a panel without overrides.
function configure(frame, index, defaults) {
  const [time, value] = frame.fields;
  value.config = { color: { mode: 'palette-classic' }, ...defaults, ...value.config };
  value.state = { seriesIndex: index };
  for (const field of [time, value]) {
    field.display = getDisplayProcessor({ field, theme, timeZone: 'utc' });
  }
}

function Panel({ panel, range, done }) {
  const [frames, setFrames] = useState(null);
  useEffect(() => {
    Promise.all(panel.targets.map((target) => query(target, range))).then((answers) => {
      const found = answers.flat();
      found.forEach((frame, i) => configure(frame, i, panel.fieldConfig.defaults));
      setFrames(found);
      done(panel.title, found.length);
    });
  }, []);
  const at = place(panel.gridPos);
  const span = { from: dateTime(range.start * 1000), to: dateTime(range.end * 1000) };
  return (
    <div style={{ position: 'absolute', ...at }}>
      <PanelChrome title={panel.title} description={panel.description} width={at.width} height={at.height}>
        {(w, h) => frames && (frames.length > 0
          ? <TimeSeries frames={frames} width={w} height={h} timeZone="utc" legend={panel.options.legend} timeRange={{ ...span, raw: span }} />
          : <div style={{ padding: h / 2 - 10, textAlign: 'center', color: theme.colors.text.secondary }}>No data</div>)}
      </PanelChrome>
    </div>
  );
}

function Board({ board, range, done }) {
  const bottom = Math.max(...board.panels.map(({ gridPos }) => gridPos.y + gridPos.h));
  return (
    <ThemeContext.Provider value={theme}>
      <GlobalStyles />
      <PanelContextProvider value={{ eventBus: new EventBusSrv(), eventsScope: 'board' }}>
        <div id="board" style={{ width: width + 16, padding: 8, background: theme.colors.background.canvas }}>
          <h3 style={{ margin: '4px 0 8px' }}>{board.title}</h3>
          <div style={{ position: 'relative', width, height: bottom * (rowHeight + gap) }}>
            {board.panels.map((panel) => panel.type === 'row'
              ? <div key={panel.id} style={{ position: 'absolute', ...place(panel.gridPos), paddingTop: 6, fontWeight: 500 }}>{panel.title}</div>
              : <Panel key={panel.title} panel={panel} range={range} done={done} />)}
          </div>
        </div>
      </PanelContextProvider>
    </ThemeContext.Provider>
  );
}

// draw draws a dashboard and returns how many series each panel has.
window.draw = (board, range) => new Promise((resolve) => {
  const series = {}, panels = board.panels.filter((panel) => panel.type !== 'row').length;
  const done = (title, count) => {
    series[title] = count;
    if (Object.keys(series).length === panels) {
      resolve(series);
    }
  };
  createRoot(document.body.appendChild(document.createElement('div'))).render(<Board board={board} range={range} done={done} />);
});
