//! The screen of `sluicegate top`. A thread asks the proxy, so that keys are answered at once.

use std::error::Error;
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::style::Stylize;
use ratatui::text::{Line, Text};
use ratatui::{DefaultTerminal, Frame};

use super::report::Report;
use super::{PERIOD, Question, later};
use crate::cli::admin_client::{AdminClient, CallError};

/// How long the screen waits for a key before it looks for an answer.
const TICK: Duration = Duration::from_millis(100);

/// The contents of the screen.
#[derive(Debug)]
struct Screen {
    question: Question,
    /// `None` before the first answer.
    report: Option<Report>,
    /// The reason why the last question has no answer so far.
    problem: Option<String>,
}

/// The answer to a question.
type Asked = Result<Report, CallError>;

/// Shows answers until `q` is pressed.
///
/// # Errors
/// The proxy does not answer at first, or the terminal is none: a sentence for people.
pub(super) fn run(client: AdminClient, question: Question) -> Result<ExitCode, String> {
    let mut screen = Screen {
        question: question.clone(),
        report: None,
        problem: Some(format!("asking {} ..", client.url())),
    };
    let (questions, asked) = channel();
    let (answered, answers) = channel();
    thread::spawn(move || ask_again_and_again(&client, question, &asked, &answered));
    let mut run = |mut terminal| screen.run(&mut terminal, &questions, &answers);
    let ended = ratatui::try_init().map_err(Box::from).and_then(&mut run);
    ratatui::restore();
    ended
        .map(|()| ExitCode::SUCCESS)
        .map_err(|error| error.to_string())
}

/// Asks every two seconds, and at once when the question changes, until nobody listens.
fn ask_again_and_again(
    client: &AdminClient,
    mut question: Question,
    asked: &Receiver<Question>,
    answered: &Sender<Asked>,
) {
    while answered.send(question.report(client)).is_ok() {
        match asked.recv_timeout(PERIOD) {
            // The last of several: a proxy may take as long as the deadline for each.
            Ok(next) => question = asked.try_iter().last().unwrap_or(next),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
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
    ) -> Result<(), Box<dyn Error>> {
        loop {
            terminal.draw(|frame| self.draw(frame))?;
            if event::poll(TICK)?
                && let Event::Key(key) = event::read()?
                && key.kind != KeyEventKind::Release
            {
                if self.press(key) {
                    return Ok(());
                }
                _ = questions.send(self.question.clone());
            }
            if let Some(answer) = answers.try_iter().last() {
                self.show(answer)?;
            }
        }
    }

    /// Changes the question as a key says. Returns true if the key ends the screen.
    fn press(&mut self, key: KeyEvent) -> bool {
        let has_control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Char('q') | KeyCode::Esc => return true,
            KeyCode::Char('c') if has_control => return true,
            KeyCode::Left => self.question.by = *later(&self.question.by, 2),
            KeyCode::Right => self.question.by = *later(&self.question.by, 1),
            KeyCode::Char('w') => self.question.window = *later(&self.question.window, 1),
            _ => {}
        }
        false
    }

    /// # Errors
    /// The first question has no answer: a sentence for people.
    fn show(&mut self, answer: Asked) -> Result<(), CallError> {
        match answer {
            Ok(report) => (self.report, self.problem) = (Some(report), None),
            Err(problem) if self.report.is_none() => return Err(problem),
            Err(problem) => self.problem = Some(format!("no answer, asking again: {problem}")),
        }
        Ok(())
    }

    fn draw(&self, frame: &mut Frame<'_>) {
        let [width, height] = [frame.area().width, frame.area().height].map(usize::from);
        let report = self.report.as_ref();
        let mut lines = report.map_or(vec![], |report| report.lines(width, height));
        lines.resize(height.saturating_sub(1), Line::default());
        let help = "left/right: order  w: window  q: quit";
        let about = report.map(Report::about).unwrap_or_default();
        lines.push(format!("{help}  {about}").dim().into());
        if let Some(problem) = &self.problem {
            lines
                .iter_mut()
                .for_each(|line| line.style = line.style.dim());
            lines[0] = problem.clone().red().bold().into();
        }
        frame.render_widget(Text::from(lines), frame.area());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::top::report::tests::report;
    use crate::proxy::activity::{Measure, Window};

    fn screen() -> Screen {
        Screen {
            question: Question {
                by: Measure::Limited,
                window: Window::Minute,
                policy: None,
                limit: 20,
            },
            report: None,
            problem: Some("asking http://127.0.0.1:9980 ..".to_owned()),
        }
    }

    fn drawn(screen: &Screen) -> String {
        let backend = ratatui::backend::TestBackend::new(80, 24);
        let mut terminal = ratatui::Terminal::new(backend).expect("a terminal");
        let drawn = terminal.draw(|frame| screen.draw(frame));
        drawn.expect("it is drawn");
        terminal.backend().to_string()
    }

    #[test]
    fn the_screen_keeps_the_last_answer_while_the_proxy_gives_none() {
        let mut screen = screen();
        screen.show(Ok(report(3))).expect("an answer");
        let text = drawn(&screen);
        for part in ["last 1m", "LIMITED", "k_1", "q: quit"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let shown = screen.show(Err("nothing answers".to_owned().into()));
        shown.expect("the last answer stays");
        let text = drawn(&screen);
        assert!(
            text.contains("asking again: nothing answers") && text.contains("k_1"),
            "{text}"
        );
        screen.show(Ok(report(3))).expect("an answer");
        assert!(!drawn(&screen).contains("asking again"));
    }

    #[test]
    fn a_proxy_that_has_not_answered_is_named_and_keys_work_meanwhile() {
        let mut screen = screen();
        let text = drawn(&screen);
        assert!(text.contains("asking http://127.0.0.1:9980"), "{text}");
        assert!(screen.press(KeyEvent::from(KeyCode::Char('q'))));
        let shown = screen.show(Err("nothing answers".to_owned().into()));
        assert_eq!(shown.expect_err("no answer").to_string(), "nothing answers");
    }

    #[test]
    fn keys_choose_order_and_window_and_end() {
        let mut screen = screen();
        let mut press = |code| (screen.press(KeyEvent::from(code)), screen.question.path());
        let path = |by, window| format!("/v1/top?by={by}&window={window}&limit=20");
        assert_eq!(press(KeyCode::Left), (false, path("units", "1m")));
        assert_eq!(press(KeyCode::Right), (false, path("limited", "1m")));
        assert_eq!(press(KeyCode::Right), (false, path("busiest", "1m")));
        assert_eq!(press(KeyCode::Char('w')), (false, path("busiest", "5m")));
        assert!(press(KeyCode::Char('q')).0);
        let control = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        assert!(screen.press(control));
    }
}
