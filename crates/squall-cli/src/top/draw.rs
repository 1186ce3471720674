//! Draws the screen from the state alone.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Cell, Clear, List, ListState, Paragraph, Row as TableRow, Table, TableState};

use super::command::{attribute_line, detail_lines, named};
use super::print::{COLUMNS, cells, is_number};
use super::state::{Prompt, State};
use super::{fit, keys};

/// Minimum screen height that shows the detail pane.
const LINES_FOR_DETAIL: u16 = 16;

const STRONG: Style = Style::new().add_modifier(Modifier::BOLD);
const CHOSEN: Style = Style::new().add_modifier(Modifier::REVERSED);
const TROUBLE: Style = Style::new().fg(Color::Red).add_modifier(Modifier::BOLD);

/// Draws the whole screen.
pub(super) fn draw(frame: &mut Frame<'_>, state: &State) {
    let area = frame.area();
    let detail_lines = if area.height >= LINES_FOR_DETAIL { area.height * 2 / 5 } else { 0 };
    let [title, table, detail, message, help] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Min(2),
        Constraint::Length(detail_lines),
        Constraint::Length(1),
        Constraint::Length(1),
    ])
    .areas(area);
    frame.render_widget(Paragraph::new(title_line(state)), title);
    draw_table(frame, state, table);
    draw_detail(frame, state, detail);
    frame.render_widget(Paragraph::new(message_line(state)), message);
    frame.render_widget(Paragraph::new(keys::LINE).style(Style::new().add_modifier(Modifier::DIM)), help);
    draw_prompt(frame, state, area);
}

fn title_line(state: &State) -> Line<'_> {
    let mut text = format!("  {} objects, by {}", state.total, state.sort.name());
    if state.rows.len() < state.total {
        text.push_str(&format!("; the first {}", state.rows.len()));
    }
    if state.counting {
        text.push_str("; calls are counted");
    }
    let mut spans = vec![Span::styled(state.title.as_str(), STRONG), Span::raw(text)];
    if state.all_frozen {
        spans.push(Span::styled("  every policy is frozen", TROUBLE));
    }
    Line::from(spans)
}

fn message_line(state: &State) -> Line<'_> {
    match (&state.trouble, &state.message) {
        (Some(trouble), _) => Line::styled(trouble.as_str(), TROUBLE),
        (None, Some(message)) => Line::raw(message.as_str()),
        (None, None) => Line::raw(""),
    }
}

fn draw_table(frame: &mut Frame<'_>, state: &State, area: Rect) {
    // Formats only the rows that fit, with the selected row near the middle.
    let fit = usize::from(area.height.saturating_sub(1));
    let place = state.place();
    let first = place.unwrap_or(0).saturating_sub(fit / 2).min(state.rows.len().saturating_sub(fit));
    let shown: Vec<[String; COLUMNS.len()]> = state.rows.iter().skip(first).take(fit).map(cells).collect();
    let columns = fit::columns(&shown, Some(usize::from(area.width)));
    let widths: Vec<Constraint> = columns
        .iter()
        .map(|(_, width)| Constraint::Length(u16::try_from(*width).unwrap_or(u16::MAX)))
        .collect();
    let line = |cells: &[String; COLUMNS.len()]| {
        let cell = |(column, width): &fit::Shown| {
            let line = Line::from(fit::cut(&cells[*column], *width));
            Cell::from(if is_number(*column) { line.right_aligned() } else { line })
        };
        TableRow::new(columns.iter().map(cell).collect::<Vec<_>>())
    };
    let table = Table::new(shown.iter().map(line).collect::<Vec<_>>(), widths)
        .column_spacing(fit::GAP as u16)
        .header(line(&COLUMNS.map(str::to_owned)).style(STRONG))
        .row_highlight_style(CHOSEN);
    let mut position = TableState::new().with_selected(place.map(|place| place - first));
    frame.render_stateful_widget(table, area, &mut position);
}

fn draw_detail(frame: &mut Frame<'_>, state: &State, area: Rect) {
    if area.is_empty() {
        return;
    }
    let block = Block::bordered();
    let paragraph = match &state.detail {
        Some((detail, history)) => {
            let lines = detail_lines(detail, history, state.readings).into_iter().map(Line::from);
            let title = format!("object {}{}", detail.row.id, named(detail.row.name.as_deref()));
            Paragraph::new(lines.collect::<Vec<_>>()).block(block.title(title))
        }
        None => Paragraph::new("no object is selected").block(block),
    };
    frame.render_widget(paragraph, area);
}

fn draw_prompt(frame: &mut Frame<'_>, state: &State, area: Rect) {
    match &state.prompt {
        Prompt::None => {}
        Prompt::Help => {
            let lines = keys::HELP.iter().map(|(keys, what)| format!("{keys:<8} {what}"));
            draw_list(frame, area, "keys (press any key to leave)", lines.collect(), None);
        }
        Prompt::Nodes(lines) => {
            draw_list(frame, area, "nodes and pools (press any key to leave)", lines.clone(), None);
        }
        Prompt::Attribute { id, chosen } => {
            let lines = state.attributes().iter().map(attribute_line).collect();
            draw_list(
                frame,
                area,
                &format!("set an attribute of {id} (enter, escape)"),
                lines,
                Some(*chosen),
            );
        }
        Prompt::Implementation { id, chosen } => {
            let lines = state.implementations().to_vec();
            draw_list(frame, area, &format!("swap {id} to (enter, escape)"), lines, Some(*chosen));
        }
        Prompt::Value { id, name, value } => {
            let about = state.attributes().iter().find(|attribute| attribute.name == *name);
            let lines = [format!("{name} = {value}_"), about.map_or(String::new(), attribute_line)];
            draw_list(frame, area, &format!("value for {id} (enter, escape)"), lines.to_vec(), None);
        }
    }
}

/// Draws a list in the middle of the screen.
fn draw_list(frame: &mut Frame<'_>, area: Rect, title: &str, lines: Vec<String>, chosen: Option<usize>) {
    let wide =
        lines.iter().map(|line| line.chars().count()).chain([title.chars().count()]).max().unwrap_or(0);
    let width = u16::try_from(wide).unwrap_or(u16::MAX).saturating_add(4).min(area.width);
    let height = u16::try_from(lines.len()).unwrap_or(u16::MAX).saturating_add(2).min(area.height);
    let place = area.centered(Constraint::Length(width), Constraint::Length(height));
    frame.render_widget(Clear, place);
    let list = List::new(lines).block(Block::bordered().title(title.to_owned())).highlight_style(CHOSEN);
    frame.render_stateful_widget(list, place, &mut ListState::default().with_selected(chosen));
}
