//! The screen of `sluicegate top`. A thread asks the proxy, so that keys are answered at once.

use std::io;
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::layout::{Alignment, Constraint, Layout};
use ratatui::style::Stylize;
use ratatui::text::{Line, Text};
use ratatui::widgets::{Cell, Paragraph, Row, Table};
use ratatui::{DefaultTerminal, Frame};

use super::report::{Report, TEXTS};
use super::{PERIOD, Question, neighbour};
use crate::admin::top::Top;
use crate::cli::admin_client::{AdminClient, ApiAnswer};
use crate::proxy::activity::Measure;

/// How long the screen waits for a key before it looks for an answer.
const TICK: Duration = Duration::from_millis(100);

/// The contents of the screen.
#[derive(Debug)]
struct Screen {
    question: Question,
    /// The URL of the proxy.
    proxy: String,
    /// `None` before the first answer.
    report: Option<Report>,
    problem: Option<String>,
}

/// The answer to a question, or a sentence for people.
type Asked = Result<ApiAnswer<Top>, String>;

/// The effect of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Effect {
    None,
    Ask,
    End,
}

/// Shows answers until `q` is pressed.
///
/// # Errors
/// The proxy does not answer at first, or the terminal is none: a sentence for people.
pub(super) fn run(client: AdminClient, question: Question) -> Result<ExitCode, String> {
    let mut screen = Screen {
        question,
        proxy: client.url(),
        report: None,
        problem: None,
    };
    let (questions, asked) = channel();
    let (answered, answers) = channel();
    _ = questions.send(screen.question.clone());
    thread::spawn(move || ask_again_and_again(&client, &asked, &answered));
    let mut terminal = ratatui::try_init().map_err(|error| no_terminal(&error))?;
    let ended = screen.run(&mut terminal, &questions, &answers);
    ratatui::restore();
    ended.map(|()| ExitCode::SUCCESS)
}

fn no_terminal(error: &io::Error) -> String {
    format!("the terminal cannot be used: {error}; NO_COLOR=1 prints tables instead")
}

/// Asks once a second, and at once when the question changes, until nobody listens.
fn ask_again_and_again(client: &AdminClient, asked: &Receiver<Question>, answered: &Sender<Asked>) {
    let mut question: Option<Question> = None;
    loop {
        match asked.recv_timeout(PERIOD) {
            // The last of several: a proxy may take as long as the deadline for each.
            Ok(next) => question = Some(asked.try_iter().last().unwrap_or(next)),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        let Some(question) = &question else {
            continue;
        };
        if answered.send(question.ask(client)).is_err() {
            return;
        }
    }
}

/// The next key, if one is pressed soon.
fn read_key() -> io::Result<Option<KeyEvent>> {
    if !event::poll(TICK)? {
        return Ok(None);
    }
    match event::read()? {
        Event::Key(key) if key.kind != KeyEventKind::Release => Ok(Some(key)),
        _ => Ok(None),
    }
}

impl Screen {
    /// Draws answers and follows keys, until one ends it.
    ///
    /// # Errors
    /// As [`run`].
    fn run(
        &mut self,
        terminal: &mut DefaultTerminal,
        questions: &Sender<Question>,
        answers: &Receiver<Asked>,
    ) -> Result<(), String> {
        loop {
            let drawn = terminal.draw(|frame| self.draw(frame));
            drawn.map_err(|error| no_terminal(&error))?;
            let key = read_key().map_err(|error| no_terminal(&error))?;
            match key.map_or(Effect::None, |key| self.press(key)) {
                Effect::None => {}
                Effect::Ask => _ = questions.send(self.question.clone()),
                Effect::End => return Ok(()),
            }
            if let Some(answer) = answers.try_iter().last() {
                self.show(answer)?;
            }
        }
    }

    fn press(&mut self, key: KeyEvent) -> Effect {
        let has_control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Char('q') | KeyCode::Esc => return Effect::End,
            KeyCode::Char('c') if has_control => return Effect::End,
            KeyCode::Left => self.question.by = *neighbour(&self.question.by, -1),
            KeyCode::Right => self.question.by = *neighbour(&self.question.by, 1),
            KeyCode::Char('w') => self.question.window = *neighbour(&self.question.window, 1),
            _ => return Effect::None,
        }
        Effect::Ask
    }

    /// # Errors
    /// The first question has no answer: a sentence for people.
    fn show(&mut self, answer: Asked) -> Result<(), String> {
        match answer {
            Ok(answer) => {
                self.report = Some(Report::new(&answer.fields));
                self.problem = None;
            }
            Err(problem) if self.report.is_none() => return Err(problem),
            Err(problem) => self.problem = Some(problem),
        }
        Ok(())
    }

    fn draw(&self, frame: &mut Frame<'_>) {
        let parts = [
            Constraint::Length(1),
            Constraint::Length(1),
            Constraint::Min(1),
            Constraint::Length(1),
        ];
        let [title, problem, table, help] = Layout::vertical(parts).areas(frame.area());
        let heading = match &self.report {
            Some(report) => format!("sluicegate top: {}", report.title),
            None => format!("sluicegate top: asking {} ..", self.proxy),
        };
        frame.render_widget(Line::from(heading).bold(), title);
        if let Some(text) = &self.problem {
            frame.render_widget(Paragraph::new(text.as_str()).red(), problem);
        }
        if let Some(report) = &self.report {
            frame.render_widget(self.table(report), table);
        }
        let keys = "left/right: order   w: window   q: quit";
        frame.render_widget(Line::from(keys).dim(), help);
    }

    fn table<'a>(&self, report: &'a Report) -> Table<'a> {
        let ordering = match self.question.by {
            Measure::Limited => "LIMITED",
            Measure::Busiest => "REQUESTS",
            Measure::Units => "UNITS",
        };
        let cell = |column: usize, text: &str| {
            let text = Text::from(text.to_owned());
            Cell::from(if column < TEXTS {
                text
            } else {
                text.alignment(Alignment::Right)
            })
        };
        let head = report.columns.iter().enumerate().map(|(column, name)| {
            let named = cell(column, name);
            if *name == ordering {
                named.reversed()
            } else {
                named.bold()
            }
        });
        let rows = report.rows.iter().map(|row| {
            let cells = row.iter().enumerate();
            Row::new(cells.map(|(column, text)| cell(column, text)))
        });
        let widths = report.widths().map(|width| {
            let width = u16::try_from(width).unwrap_or(u16::MAX);
            Constraint::Length(width)
        });
        Table::new(rows, widths)
            .header(Row::new(head))
            .column_spacing(2)
    }
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use serde_json::json;

    use super::*;
    use crate::proxy::activity::Window;

    fn screen() -> Screen {
        Screen {
            question: Question {
                by: Measure::Limited,
                window: Window::Minute,
                policy: None,
                limit: 20,
            },
            proxy: "http://127.0.0.1:9980".to_owned(),
            report: None,
            problem: None,
        }
    }

    fn answer() -> Asked {
        let json = json!({
            "by": "limited", "window": "1m", "counted_s": 60, "keys": "hashed", "items": [
                { "rank": 1, "policy": "login", "key_id": "k_1", "key": null, "limited": 30,
                  "requests": null, "units": null, "error_bound": 0 },
            ],
        });
        let fields = serde_json::from_value(json.clone()).expect("an answer");
        Ok(ApiAnswer { json, fields })
    }

    fn drawn(screen: &Screen) -> String {
        let mut terminal = Terminal::new(TestBackend::new(70, 6)).expect("a terminal");
        let drawn = terminal.draw(|frame| screen.draw(frame));
        drawn.expect("it is drawn");
        terminal.backend().to_string()
    }

    #[test]
    fn the_screen_shows_keys_and_the_last_problem() {
        let mut screen = screen();
        screen.show(answer()).expect("an answer");
        let text = drawn(&screen);
        for part in ["last 1m", "LIMITED", "k_1", "login", "30", "q: quit"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let shown = screen.show(Err("nothing answers".to_owned()));
        shown.expect("the last answer stays");
        let text = drawn(&screen);
        assert!(
            text.contains("nothing answers") && text.contains("k_1"),
            "{text}"
        );
    }

    #[test]
    fn a_proxy_that_has_not_answered_is_named_and_keys_work_meanwhile() {
        let mut screen = screen();
        let text = drawn(&screen);
        assert!(text.contains("asking http://127.0.0.1:9980"), "{text}");
        assert_eq!(
            screen.press(KeyEvent::from(KeyCode::Char('q'))),
            Effect::End
        );
        let shown = screen.show(Err("nothing answers".to_owned()));
        assert_eq!(shown, Err("nothing answers".to_owned()));
    }

    #[test]
    fn keys_choose_order_and_window_and_end() {
        let mut screen = screen();
        let mut press = |code| (screen.press(KeyEvent::from(code)), screen.question.path());
        let path = |by, window| format!("/v1/top?by={by}&window={window}&limit=20");
        assert_eq!(press(KeyCode::Left), (Effect::Ask, path("units", "1m")));
        assert_eq!(press(KeyCode::Right), (Effect::Ask, path("limited", "1m")));
        assert_eq!(press(KeyCode::Right), (Effect::Ask, path("busiest", "1m")));
        assert_eq!(
            press(KeyCode::Char('w')),
            (Effect::Ask, path("busiest", "5m"))
        );
        assert_eq!(press(KeyCode::Up).0, Effect::None);
        assert_eq!(press(KeyCode::Char('q')).0, Effect::End);
        let control = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        assert_eq!(screen.press(control), Effect::End);
    }
}
